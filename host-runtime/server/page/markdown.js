// Markdown to what may stand in the page. `marked` parses it, and DOMPurify takes out whatever could do more than show
// text: an answer may repeat what a stranger has written.

import { marked } from "./vendor/marked.esm.js";
import DOMPurify from "./vendor/purify.es.mjs";
import { copyButton, make } from "./dom.js";

const PURIFY = {
  RETURN_DOM_FRAGMENT: true,
  USE_PROFILES: { html: true },
  FORBID_TAGS: ["style", "form", "input", "button", "textarea", "select", "img", "picture", "audio", "video", "dialog"],
  FORBID_ATTR: ["style", "id", "name"],
};

// Pictures become links: looking at an answer must not ask another server for anything.
marked.use({
  renderer: {
    image({ href, text }) {
      return make("a", { href, textContent: text || "picture" }).outerHTML;
    },
  },
});

/** The parts of the page that show `text`. */
export function render(text) {
  const fragment = DOMPurify.sanitize(marked.parse(text, { gfm: true, breaks: true }), PURIFY);
  for (const link of fragment.querySelectorAll("a[href]")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer";
  }
  for (const table of fragment.querySelectorAll("table")) {
    wrap(table, "table-frame");
  }
  for (const code of fragment.querySelectorAll("pre > code")) {
    const frame = wrap(code.parentElement, "code-frame");
    const language = /language-(\S+)/.exec(code.className)?.[1] ?? "text";
    const copy = copyButton("Copy the code", () => code.textContent);
    frame.prepend(make("div", { className: "code-head" }, make("span", {}, language), copy));
    // A block that is wider than the page can be scrolled with the keyboard.
    code.parentElement.tabIndex = 0;
  }
  return fragment;
}

function wrap(element, name) {
  const frame = make("div", { className: name });
  element.replaceWith(frame);
  frame.append(element);
  return frame;
}
