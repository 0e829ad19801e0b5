// Conveniences for the demonstration browser: everything works without this file.
"use strict";
const text = document.getElementById("page-text");
const forms = [...document.querySelectorAll("form")];
const quote = document.getElementById("quote");
if (text && quote) {
  const until = document.getElementById("until");
  const bar = document.getElementById("selected");
  const words = document.getElementById("selected-words");

  // What is selected in the page's text, without the buttons that open links.
  const selected = () => {
    const selection = document.getSelection();
    if (!selection.rangeCount || selection.isCollapsed) return "";
    const range = selection.getRangeAt(0);
    if (!text.contains(range.commonAncestorContainer)) return "";
    const part = range.cloneContents();
    part.querySelectorAll(".open").forEach((button) => button.remove());
    return part.textContent.trim();
  };
  let timer = null;
  document.addEventListener("selectionchange", () => {
    const now = selected();
    clearTimeout(timer);
    if (!now) {
      // A finger that presses the button ends the selection first.
      timer = setTimeout(() => { bar.hidden = true; }, 500);
      return;
    }
    quote.value = now;
    until.value = "";
    words.textContent = now.length > 160 ? now.slice(0, 80) + " … " + now.slice(-80) : now;
    bar.hidden = false;
  });
  bar.addEventListener("mousedown", (event) => event.preventDefault());
}
if (text) {
  // A click on the underlined words opens their link, too, unless they are being selected.
  text.addEventListener("click", (event) => {
    const link = event.target.closest(".link");
    if (link && document.getSelection().isCollapsed) link.nextElementSibling.click();
  });
}

// A form is sent only once; the buttons work again when the rater returns to the page.
let sent = false;
const inert = (off) => {
  document.querySelectorAll("main button").forEach((button) => {
    if (off) button.dataset.was = button.disabled ? "off" : "on";
    button.disabled = off || button.dataset.was === "off";
  });
};
forms.forEach((form) => form.addEventListener("submit", (event) => {
  if (sent) { event.preventDefault(); return; }
  sent = true;
  setTimeout(() => inert(true), 0);
}));
window.addEventListener("pageshow", (event) => {
  if (event.persisted && sent) inert(false);
  sent = false;
});
