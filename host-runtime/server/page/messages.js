// The messages of a conversation, as parts of the page.

import { drafts } from "./answer.js";
import { path, versions } from "./conversation.js";
import { copyButton, icon, iconButton, make } from "./dom.js";
import { render } from "./markdown.js";

/** A list of files, each with a button that removes it if `remove` is given. */
export function fileList(list, files, remove) {
  list.hidden = files.length === 0;
  list.replaceChildren(...files.map((file) => {
    const item = file.picture
      ? make("li", { className: "picture" }, make("img", { src: file.picture, alt: file.name, title: file.name }))
      : make("li", {}, icon("file"), make("span", {}, file.name), make("small", {}, size(file.text)));
    if (remove) {
      item.append(iconButton("close", `Remove ${file.name}`, () => remove(file)));
    }
    return item;
  }));
}

function size(text) {
  return text.length < 1024 ? `${text.length} B` : `${Math.round(text.length / 1024)} kB`;
}

/** Whether the mouse or the keyboard has opened the thoughts of a message: drawing it again keeps them so. */
const openThoughts = new Set();

function thoughts(message) {
  const isThinking = message.state === "running" && !message.content;
  const summary = make("summary", {}, isThinking ? "Thinking…" : "Thoughts");
  const details = make("details", { className: "thoughts", open: openThoughts.has(message.id) }, summary);
  const body = make("div", { className: "body" });
  body.append(render(message.thoughts));
  details.append(body);
  details.addEventListener("toggle", () => {
    details.open ? openThoughts.add(message.id) : openThoughts.delete(message.id);
  });
  return details;
}

/** The tokens of an answer, one by one, with marks on those that were drafted. */
function tokens(message) {
  const parts = [];
  for (const [text, drafted, rejected] of message.tokens) {
    if (rejected > 0) {
      const mark = make("span", { className: "rejected", textContent: rejected });
      mark.title = rejected === 1 ? "A draft was rejected here" : `${rejected} drafts were rejected here`;
      parts.push(mark);
    }
    const token = make("span", { className: drafted ? "token draft" : "token", textContent: text });
    token.title = `${JSON.stringify(text)}: ${drafted ? "drafted and accepted" : "chosen by the model"}`;
    parts.push(token);
  }
  return make("div", { className: "body tokens" }, ...parts);
}

function footnote(message) {
  const parts = [];
  if (message.timings) {
    const { predicted_n: n, predicted_per_second: speed, cache_n: cached, prompt_n: computed } = message.timings;
    parts.push(`${n} tokens`, `${speed.toFixed(1)} per second`);
    const { verified, accepted } = drafts(message);
    if (verified > 0) {
      parts.push(`${accepted} of ${verified} drafts accepted`);
    }
    parts.push(`${cached} of ${cached + computed} prompt tokens reused`);
  }
  if (message.state === "stopped") {
    parts.push("stopped");
  }
  if (message.state === "length") {
    parts.push("ended by the limit of tokens");
  }
  return parts.join(" · ");
}

/** Puts into `article` what a message says. */
function fill(article, message, showTokens) {
  const parts = [];
  if (message.role === "user") {
    if (message.files?.length) {
      const list = make("ul", { className: "files" });
      fileList(list, message.files);
      parts.push(list);
    }
    parts.push(make("div", { className: "body plain", textContent: message.content }));
  } else if (showTokens && message.tokens?.length) {
    parts.push(tokens(message));
  } else {
    if (message.thoughts) {
      parts.push(thoughts(message));
    }
    const body = make("div", { className: "body" });
    body.append(render(message.content));
    if (message.state === "running" && !message.content && !message.thoughts) {
      body.append(make("span", { className: "waiting", textContent: "…" }));
    }
    parts.push(body);
  }
  if (message.error) {
    parts.push(make("p", { className: "error", textContent: message.error }));
  }
  article.querySelector(".content").replaceChildren(...parts);
  article.classList.toggle("running", message.state === "running");
  article.setAttribute("aria-busy", String(message.state === "running"));
}

/** Draws a message that has grown. */
export function redraw(message, showTokens) {
  const article = document.getElementById(`message-${message.id}`);
  if (article) {
    fill(article, message, showTokens);
  }
}

/**
 * Draws all messages of a conversation. `actions` has what can be done with one: `edit`, `again` and `choose` (another
 * version).
 */
export function draw(list, conversation, showTokens, actions) {
  list.replaceChildren(...path(conversation).map((message) => {
    const mine = message.role === "user";
    const article = make("article", { id: `message-${message.id}`, className: `message ${message.role}` });
    article.setAttribute("aria-label", mine ? "You" : "Answer");
    article.append(make("div", { className: "content" }));
    fill(article, message, showTokens);

    const bar = make("footer", {});
    const others = versions(conversation, message);
    if (others.length > 1) {
      const at = others.indexOf(message);
      const step = (name, label, other) => {
        const button = iconButton(name, label, () => actions.choose(other));
        button.disabled = !other;
        return button;
      };
      bar.append(step("left", "Earlier version", others[at - 1]), make("span", {}, `${at + 1}/${others.length}`),
        step("right", "Later version", others[at + 1]));
    }
    if (message.state !== "running") {
      bar.append(copyButton("Copy the message", () => message.content));
      bar.append(mine
        ? iconButton("edit", "Edit and send again", () => actions.edit(message, article))
        : iconButton("again", "Answer again", () => actions.again(message)));
    }
    bar.append(make("small", { className: "footnote" }, footnote(message)));
    article.append(bar);
    return article;
  }));
}
