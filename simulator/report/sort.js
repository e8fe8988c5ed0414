// Click a heading to sort the table by its column: numbers by value, words by letter; once more to turn it round.
for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const heading = button.closest("th"), table = heading.closest("table"), body = table.tBodies[0];
    const direction = heading.getAttribute("aria-sort") === "descending" ? 1 : -1;
    const key = (row) => row.cells[heading.cellIndex].dataset.value;
    const order = (a, b) => direction * (key(a) - key(b) || String(key(a)).localeCompare(String(key(b))));
    for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
    body.append(...[...body.rows].sort((a, b) => order(a, b)));
  });
}
