// Conveniences only: everything works without this file.
"use strict";
const form = document.getElementById("rating");
if (form) {
  const submit = document.getElementById("submit");
  const saved = document.getElementById("saved");
  const words = (area) => area.value.trim().split(/\s+/).filter(Boolean).length;

  // Enables the submit button once all required fields are filled in.
  const complete = () => {
    const flag = form.querySelector("input[name=flag]:checked");
    if (flag && flag.value) return true;
    const texts = [...form.querySelectorAll("textarea")];
    return [...form.elements].every((e) => e.type === "textarea" || e.checkValidity()) &&
      texts.every((area) => words(area) >= Number(area.dataset.words));
  };
  const refresh = () => { submit.disabled = !complete(); };

  // Saves a draft two seconds after the last change.
  let timer = null, sent = false;
  const save = () => {
    if (sent || !form.dataset.draft) return;
    fetch(form.dataset.draft, { method: "POST", body: new URLSearchParams(new FormData(form)) })
      .then((answer) => answer.json())
      .then((answer) => { saved.textContent = answer.saved ? "Draft saved" : ""; })
      .catch(() => { saved.textContent = "The draft could not be saved"; });
  };
  form.addEventListener("input", () => {
    refresh();
    saved.textContent = "";
    clearTimeout(timer);
    timer = setTimeout(save, 2000);
  });

  // A vote is sent only once: the buttons are then disabled until the rater returns to the page.
  form.addEventListener("submit", (event) => {
    if (sent) { event.preventDefault(); return; }
    sent = true;
    clearTimeout(timer);
    setTimeout(() => form.querySelectorAll("button").forEach((b) => { b.disabled = true; }), 0);
  });
  window.addEventListener("pageshow", () => {
    sent = false;
    form.querySelectorAll("button").forEach((b) => { b.disabled = false; });
    refresh();
  });

  // Keys 1 to 5 answer the focused group, else the first open one; Ctrl+Enter submits.
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && event.ctrlKey && !submit.disabled) {
      event.preventDefault();
      form.requestSubmit(submit);
      return;
    }
    const typing = event.target.closest("textarea, select, input:not([type=radio])");
    if (typing || event.ctrlKey || event.altKey || event.metaKey || !/^[1-5]$/.test(event.key)) return;
    const groups = [...form.querySelectorAll("fieldset.choice")];
    const open = (group) => !group.querySelector("input:checked");
    const group = event.target.closest("fieldset.choice") || groups.find(open);
    const option = group && group.querySelectorAll("input")[Number(event.key) - 1];
    if (!option) return;
    event.preventDefault();
    option.click();
    const next = groups.slice(groups.indexOf(group) + 1).find(open);
    (next ? next.querySelector("input") : option).focus();
  });
  refresh();
}
