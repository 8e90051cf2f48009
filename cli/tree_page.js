"use strict";
// Collapses branches, and searches. Marks are in the order of the drawing: parents before their children.
const tree = document.getElementById("tree"), drawing = tree.ownerSVGElement, input = document.getElementById("search");
const measures = ["row", "column", "bend", "top", "left", "radius"];
const [rowHeight, column, bend, top_, left, radius] = measures.map((name) => Number(tree.dataset[name]));
const marks = Array.from(tree.querySelectorAll(".mark"), (element) => ({
  element, parent: null, children: [], closed: false, column: 0, text: element.querySelector("title").textContent.toLowerCase(),
}));
for (const mark of marks) {
  if (mark.element.dataset.parent === undefined) continue;
  mark.parent = marks[Number(mark.element.dataset.parent)];
  mark.parent.children.push(mark);
  mark.column = mark.parent.column + 1;
}
let matches = [], current = -1;

function place() {
  let row = 0;
  for (const mark of marks) {
    mark.shown = mark.parent === null || (mark.parent.shown && !mark.parent.closed);
    if (mark.shown && (mark.closed || !mark.children.length)) mark.row = row++;
  }
  for (const mark of marks.slice().reverse()) {
    if (mark.shown && !mark.closed && mark.children.length) mark.row = (mark.children[0].row + mark.children.at(-1).row) / 2;
  }
  for (const mark of marks) {
    mark.element.classList.toggle("hidden", !mark.shown);
    mark.element.classList.toggle("closed", mark.closed);
    if (mark.children.length) mark.element.setAttribute("aria-expanded", String(!mark.closed));
    if (!mark.shown) continue;
    mark.element.setAttribute("transform", `translate(${left + column * mark.column} ${top_ + rowHeight * mark.row})`);
    if (mark.parent === null) continue;
    const above = rowHeight * (mark.parent.row - mark.row), start = bend - column;
    mark.element.querySelector(".edge").setAttribute("d", `M${radius - column} ${above}C${start} ${above} ${-column} 0 ${start} 0H0`);
  }
  const height = top_ + rowHeight * (row - 1) + 30;
  drawing.setAttribute("height", String(height));
  drawing.setAttribute("viewBox", `0 0 ${drawing.getAttribute("width")} ${height}`);
}

function toggle(mark) {
  mark.closed = !mark.closed;
  place();
}

function search() {
  const words = input.value.trim().toLowerCase();
  matches = words ? marks.filter((mark) => mark.text.includes(words)) : [];
  drawing.classList.toggle("searching", words !== "");
  for (const mark of marks) mark.element.classList.remove("match", "current");
  for (const mark of matches) mark.element.classList.add("match");
  current = -1;
  document.getElementById("found").value = words ? `${matches.length} found` : "";
}

function go(step) {
  if (!matches.length) return;
  if (current >= 0) matches[current].element.classList.remove("current");
  current = current < 0 ? (step > 0 ? 0 : matches.length - 1) : (current + step + matches.length) % matches.length;
  let opened = false;
  for (let above = matches[current].parent; above !== null; above = above.parent) {
    opened = opened || above.closed;
    above.closed = false;
  }
  if (opened) place();
  matches[current].element.classList.add("current");
  matches[current].element.scrollIntoView({ block: "center", inline: "center" });
  document.getElementById("found").value = `${current + 1} of ${matches.length}`;
}

for (const mark of marks.filter((one) => one.children.length)) {
  const { element } = mark;
  element.classList.add("branching");
  element.setAttribute("tabindex", "0");
  element.setAttribute("role", "button");
  element.setAttribute("aria-expanded", "true");
  element.addEventListener("click", () => toggle(mark));
  element.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    toggle(mark);
  });
}
input.addEventListener("input", search);
input.addEventListener("keydown", (event) => { if (event.key === "Enter") go(event.shiftKey ? -1 : 1); });
for (const [id, closed] of [["collapse", true], ["expand", false]]) {
  document.getElementById(id).addEventListener("click", () => {
    for (const mark of marks) mark.closed = closed && mark.parent !== null && mark.children.length > 0;
    place();
  });
}
