"""What is cached, where, for whom: prefix tree, block allocator and the store that joins them."""
