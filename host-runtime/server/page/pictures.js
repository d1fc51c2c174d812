// Pictures for models that take them: as data URLs, small enough that this browser keeps them with the conversation.

import { make } from "./dom.js";

/** Types that both browsers and the server read. */
const TYPES = ["image/png", "image/jpeg", "image/webp", "image/gif", "image/bmp"];

/** Most bytes of a file that is kept as it is: browsers keep some five million characters for a page. */
const KEPT = 256 << 10;

/** Longest side of larger ones after they were made smaller, in pixels: three tiles of 512, as encoders see them. */
const SIDE = 1536;

let isTaken = false;

/** Learns from the server whether its model takes pictures. */
export function describe(props) {
  isTaken = props.modalities?.vision === true;
}

/** Whether a file is a picture by its type. */
export function isPicture(file) {
  return TYPES.includes(file.type);
}

/** The picture of a file as a data URL. Throws an error in words if there can be none. */
export async function read(file) {
  if (!isTaken) {
    throw new Error("This model takes no pictures: the server has no encoder for it (--mmproj).");
  }
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw new Error(`${file.name} is no picture that this browser can read.`);
  }
  try {
    return file.size <= KEPT ? await whole(file) : smaller(bitmap);
  } finally {
    bitmap.close();
  }
}

function whole(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Error(`${file.name} cannot be read.`));
    reader.readAsDataURL(file);
  });
}

/** A JPEG of the picture, upright, on white where it is transparent. */
function smaller(bitmap) {
  const scale = Math.min(1, SIDE / Math.max(bitmap.width, bitmap.height));
  const [width, height] = [bitmap.width, bitmap.height].map((side) => Math.max(1, Math.round(side * scale)));
  const canvas = make("canvas", { width, height });
  const context = canvas.getContext("2d");
  context.fillStyle = "white";
  context.fillRect(0, 0, width, height);
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, 0, 0, width, height);
  return canvas.toDataURL("image/jpeg", 0.9);
}
