// The field in which a message is written, with the files that go with it.

import { fileList } from "./messages.js";
import { toast } from "./dom.js";

/** Most bytes of a file. More does not fit the context of any model that runs here. */
const MOST = 1 << 20;

const form = document.getElementById("composer");
const prompt = document.getElementById("prompt");
const list = document.getElementById("attached");
let files = [];

/** `send(text, files)` gets what was written. It tells whether that was taken. */
export function start(send) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = prompt.value.trim();
    if ((text || files.length > 0) && send(text, files)) {
      prompt.value = "";
      files = [];
      draw();
    }
  });
  prompt.addEventListener("keydown", (event) => {
    // An Enter that ends the input of a syllable sends nothing.
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  prompt.addEventListener("input", grow);

  const picker = document.getElementById("files");
  document.getElementById("attach").addEventListener("click", () => picker.click());
  picker.addEventListener("change", () => {
    attach(picker.files);
    picker.value = "";
  });
  prompt.addEventListener("paste", (event) => {
    if (event.clipboardData.files.length > 0) {
      event.preventDefault();
      attach(event.clipboardData.files);
    }
  });
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    event.preventDefault();
    attach(event.dataTransfer.files);
  });
}

export function focus() {
  prompt.focus();
}

function draw() {
  grow();
  fileList(list, files, (file) => {
    files = files.filter((other) => other !== file);
    draw();
    prompt.focus();
  });
}

/** The field is as high as its text, up to what the style allows. */
function grow() {
  prompt.style.height = "auto";
  prompt.style.height = `${prompt.scrollHeight}px`;
}

async function attach(added) {
  for (const file of added) {
    if (file.size > MOST) {
      toast(`${file.name} has more than ${MOST >> 10} kB.`);
      continue;
    }
    const text = await read(file);
    if (text === null) {
      toast(`${file.name} is no text.`);
    } else {
      files.push({ name: file.name, text });
    }
  }
  draw();
  prompt.focus();
}

/** The text of a file; `null` if it is none. */
async function read(file) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    return text.includes("\0") ? null : text;
  } catch {
    return null;
  }
}
