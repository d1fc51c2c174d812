// The field in which a message is written, with the files that go with it.

import * as pictures from "./pictures.js";
import { fileList } from "./messages.js";
import { toast } from "./dom.js";

/** Most bytes of a text. More does not fit the context of any model that runs here. */
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
  // The list of a field that is emptied, or of a paste that has ended, loses its files.
  for (const file of [...added]) {
    const { name } = file;
    try {
      files.push(pictures.isPicture(file) ? { name, picture: await pictures.read(file) } : { name, text: await read(file) });
    } catch (error) {
      toast(error.message);
    }
  }
  draw();
  prompt.focus();
}

/** The text of a file. Throws an error in words if it is none. */
async function read(file) {
  if (file.size > MOST) {
    throw new Error(`${file.name} has more than ${MOST >> 10} kB.`);
  }
  const none = new Error(`${file.name} is no text.`);
  const text = await file.arrayBuffer()
    .then((bytes) => new TextDecoder("utf-8", { fatal: true }).decode(bytes))
    .catch(() => { throw none; });
  if (text.includes("\0")) {
    throw none;
  }
  return text;
}
