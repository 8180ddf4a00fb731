// For narrow.css: each cell knows the head of its column.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("table.docutils")) {
    const heads = [...table.querySelectorAll("thead th")].map((head) => head.textContent.trim());
    for (const row of table.querySelectorAll("tbody tr")) {
      [...row.cells].forEach((cell, number) => {
        if (number && heads[number] && cell.textContent.trim()) cell.setAttribute("data-head", heads[number]);
      });
    }
  }
});
