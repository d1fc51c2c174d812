// The page: which conversation is shown, what is being written, and what buttons do.

import * as answer from "./answer.js";
import * as api from "./api.js";
import * as composer from "./composer.js";
import * as dialogs from "./dialogs.js";
import * as figures from "./figures.js";
import * as messages from "./messages.js";
import * as models from "./models.js";
import * as pictures from "./pictures.js";
import * as store from "./store.js";
import * as tree from "./conversation.js";
import { iconButton, make, say, toast } from "./dom.js";

/** Time between two questions whether the model is loaded, in milliseconds. */
const LOADING = 1000;
const LOADS = "The model is being loaded…";
/** Time between two times that an answer is saved while it comes. */
const SAVE = 1000;

const at = (id) => document.getElementById(id);
const scroll = at("scroll");

let shown = tree.create();
/** Answers that are being written, by the id of their conversation. */
const running = new Map();
let isReady = false;
/** How often the page has begun to wait for a model. */
let connections = 0;

function saveOrTell(conversation) {
  try {
    store.save(conversation);
  } catch (error) {
    toast(error.message);
  }
}

/** Draws all of the page that depends on the conversation. */
function draw() {
  const { tokens } = store.settings();
  // A page that is loaded again shows the same one.
  history.replaceState(null, "", shown.leaf === null ? location.pathname : `#${shown.id}`);
  messages.draw(at("messages"), shown, tokens, { edit, again, choose });
  at("welcome").hidden = shown.leaf !== null;
  at("title").textContent = shown.title || "New conversation";
  document.title = shown.title ? `${shown.title} – hexflash` : "hexflash";
  at("tokens").setAttribute("aria-pressed", String(tokens));
  at("legend").hidden = !tokens || shown.leaf === null;
  const isWriting = running.has(shown.id);
  at("send").hidden = isWriting;
  at("send").disabled = !isReady;
  at("stop").hidden = !isWriting;
  drawList();
}

function drawList() {
  const items = store.conversations().map((conversation) => {
    const open = make("button", { type: "button", className: "open" }, conversation.title || "Conversation");
    const isShown = conversation.id === shown.id;
    if (isShown) {
      open.setAttribute("aria-current", "page");
    }
    open.addEventListener("click", () => show(conversation.id));
    const item = make("li", { className: isShown ? "shown" : "" }, open);
    if (running.has(conversation.id)) {
      item.classList.add("running");
    }
    item.append(
      iconButton("edit", `Rename ${open.textContent}`, () => rename(conversation.id, item)),
      iconButton("trash", `Delete ${open.textContent}`, () => remove(conversation.id)),
    );
    return item;
  });
  at("conversations").replaceChildren(...items);
}

/** A conversation, or `null`. What is being written is newer than what was saved. */
function find(id) {
  return running.get(id)?.conversation ?? store.conversation(id);
}

/** Shows a conversation, or an empty one. */
function show(id) {
  shown = find(id) ?? tree.create();
  closeSidebar();
  draw();
  toEnd();
  composer.focus();
}

function rename(id, item) {
  const conversation = find(id);
  if (!conversation) {
    drawList();
    return;
  }
  const field = make("input", { value: conversation.title, maxLength: 100 });
  field.setAttribute("aria-label", "Title");
  const end = (title) => {
    field.onblur = null;
    if (title.trim() && title !== conversation.title) {
      conversation.title = title.trim();
      if (id === shown.id) {
        shown.title = conversation.title;
      }
      saveOrTell(conversation);
    }
    draw();
  };
  field.onblur = () => end(field.value);
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      end(field.value);
    } else if (event.key === "Escape") {
      event.stopPropagation();
      end(conversation.title);
    }
  });
  item.replaceChildren(field);
  field.select();
}

function remove(id) {
  const conversation = find(id);
  if (!conversation) {
    // Another tab was faster.
    drawList();
    return;
  }
  running.get(id)?.abort.abort();
  store.remove(id);
  if (id === shown.id) {
    show("");
  }
  drawList();
  toast(`“${conversation.title || "Conversation"}” is deleted.`, () => {
    saveOrTell(conversation);
    show(id);
  });
}

/** Adds a message of the user after `parent`, and lets the model answer. */
function ask(parent, text, files) {
  const asked = tree.add(shown, parent, { role: "user", content: text, files });
  write(shown, asked.id);
}

/** Lets the model answer the message `parent`. */
async function write(conversation, parent) {
  const message = tree.add(conversation, parent, { role: "assistant", content: "", state: "running" });
  const abort = new AbortController();
  running.set(conversation.id, { conversation, abort });
  saveOrTell(conversation);
  draw();
  toEnd();
  say("The answer is being written");

  let [first, saved] = [0, performance.now()];
  const grown = () => {
    if (!first && message.tokens.length > 0) {
      first = performance.now();
    }
    if (conversation.id === shown.id) {
      const follows = isAtEnd();
      messages.redraw(message, store.settings().tokens);
      figures.show(message, first);
      if (follows) {
        toEnd();
      }
    }
    if (performance.now() - saved > SAVE) {
      saved = performance.now();
      saveOrTell(conversation);
    }
  };
  await answer.write(conversation, message, store.settings(), abort.signal, grown);

  running.delete(conversation.id);
  // Who deletes a conversation does not want it back with its answer.
  if (store.conversation(conversation.id)) {
    conversation.updated = Date.now();
    saveOrTell(conversation);
  }
  if (conversation.id === shown.id) {
    const follows = isAtEnd();
    draw();
    figures.show(message, first);
    figures.look();
    if (follows) {
      toEnd();
    }
  } else {
    drawList();
  }
  say(message.error ?? (message.state === "stopped" ? "Stopped" : `Answer: ${message.content}`));
}

/** Another answer in place of this one. */
function again(message) {
  if (!running.has(shown.id)) {
    write(shown, message.parent);
  }
}

/** Another version of a message, with what came after it. */
function choose(message) {
  if (!running.has(shown.id)) {
    tree.choose(shown, message);
    saveOrTell(shown);
    draw();
  }
}

/** Lets the user write a message anew, in its place. What came after it is another version from then on. */
function edit(message, article) {
  if (running.has(shown.id)) {
    return;
  }
  const field = make("textarea", { value: message.content, rows: Math.min(12, message.content.split("\n").length + 1) });
  field.setAttribute("aria-label", "Message");
  const form = make("form", { className: "edit" }, field, make("div", { className: "row end" },
    make("button", { type: "button", textContent: "Cancel", onclick: draw }),
    make("button", { type: "submit", className: "primary", textContent: "Send" })));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (field.value.trim() || message.files?.length) {
      ask(message.parent, field.value.trim(), message.files);
    }
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      draw();
      composer.focus();
    } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  article.replaceChildren(form);
  field.focus();
}

function isAtEnd() {
  return scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 80;
}

function toEnd() {
  scroll.scrollTop = scroll.scrollHeight;
}

function openSidebar() {
  document.body.classList.add("sidebar-open");
  at("open-sidebar").setAttribute("aria-expanded", "true");
  at("shade").hidden = false;
  at("close-sidebar").focus();
}

function closeSidebar() {
  if (document.body.classList.contains("sidebar-open")) {
    document.body.classList.remove("sidebar-open");
    at("open-sidebar").setAttribute("aria-expanded", "false");
    at("shade").hidden = true;
    at("open-sidebar").focus();
  }
}

function stop() {
  running.get(shown.id)?.abort.abort();
}

function start() {
  dialogs.applyTheme();
  dialogs.start(() => show(store.conversation(shown.id) ? shown.id : ""));
  api.onKeyWanted(dialogs.askForKey);
  composer.start((text, files) => {
    if (!isReady || running.has(shown.id)) {
      return false;
    }
    ask(shown.leaf, text, files);
    return true;
  });
  at("new").addEventListener("click", () => show(""));
  at("stop").addEventListener("click", stop);
  at("to-end").addEventListener("click", toEnd);
  at("open-sidebar").addEventListener("click", openSidebar);
  at("close-sidebar").addEventListener("click", closeSidebar);
  at("shade").addEventListener("click", closeSidebar);
  at("place").textContent = location.host;
  at("tokens").addEventListener("click", () => {
    store.saveSettings({ tokens: !store.settings().tokens });
    draw();
  });
  scroll.addEventListener("scroll", () => { at("to-end").hidden = isAtEnd(); });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
      document.body.classList.contains("sidebar-open") ? closeSidebar() : stop();
    }
  });
  // An answer that is not complete when the page goes away is kept as far as it came.
  addEventListener("pagehide", () => {
    for (const { conversation, abort } of running.values()) {
      abort.abort();
      saveOrTell(conversation);
    }
  });
  store.watch((id) => {
    const now = find(id);
    if (id === shown.id && now && !running.has(id)) {
      shown = now;
      draw();
    } else if (!document.querySelector("#conversations input")) {
      // Nobody is typing a title there.
      drawList();
    }
  });
  show(location.hash.slice(1));
  connect();
}

/** Waits for the server and the model, and then shows what there is. */
async function connect() {
  isReady = false;
  connections += 1;
  const mine = connections;
  draw();
  let props = null;
  while (!props) {
    try {
      await models.offer(at("models"), connect);
      at("model").textContent = LOADS;
      props = await api.json(models.address("props", true));
    } catch (error) {
      at("model").textContent = error.status === 503 ? LOADS : error.message;
      await new Promise((resume) => setTimeout(resume, LOADING));
    }
    if (mine !== connections) {
      // Another model was chosen meanwhile.
      return;
    }
  }
  isReady = true;
  at("model").textContent = props.model_alias;
  at("model").title = props.device;
  dialogs.describe(props);
  figures.follow(props);
  pictures.describe(props);
  draw();
  say("The server is ready");
}

start();
