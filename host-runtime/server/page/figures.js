// The line of figures: what the server is doing, and what the last answer took.

import * as api from "./api.js";
import * as models from "./models.js";
import { drafts } from "./answer.js";

/** Time between two looks at the server, in milliseconds. */
const LOOK = 2000;

const list = document.getElementById("figures");
const values = new Map();
for (const [name, label, about] of [
  ["speed", "Tokens/s", "Tokens of the answer per second"],
  ["accepted", "Drafts accepted", "Of the tokens that were drafted for this answer, how many were right"],
  ["prefix", "Prompt reused", "Tokens of the prompt that were in a sequence already and were not computed again"],
  ["context", "Context", "Tokens of the fullest sequence, and for how many there is room"],
  ["slots", "Slots", "Sequences that are writing, and how many there are"],
  ["memory", "Memory", "What model, caches and states take on the device"],
]) {
  const [group, term, value] = ["div", "dt", "dd"].map((tag) => document.createElement(tag));
  group.title = about;
  term.textContent = label;
  value.textContent = "–";
  group.append(term, value);
  list.append(group);
  values.set(name, value);
}

function set(name, text) {
  if (values.get(name).textContent !== text) {
    values.get(name).textContent = text;
  }
}

const number = (n) => n.toLocaleString("en");
const percent = (part, whole) => `${Math.round((100 * part) / whole)} %`;

/** Bytes of all that the server's plan of its memory names. */
function bytes(plan) {
  const parts = ["weights", "kv", "recurrent", "snapshots", "activations", "handed_over", "io", "programs"];
  const speculation = Object.values(plan.speculation ?? {}).filter((value) => typeof value === "number");
  return [...parts.map((part) => plan[part] ?? 0), ...speculation].reduce((sum, value) => sum + value, 0);
}

/** Shows an answer's figures; `since` is when its first token came. */
export function show(message, since) {
  const { timings, tokens } = message;
  const seconds = (performance.now() - since) / 1000;
  const speed = timings ? timings.predicted_per_second : (tokens.length - 1) / seconds;
  set("speed", Number.isFinite(speed) && tokens.length > 1 ? speed.toFixed(1) : "–");
  const { verified, accepted } = drafts(message);
  set("accepted", verified > 0 ? `${percent(accepted, verified)} of ${number(verified)}` : "none");
  if (timings) {
    const all = timings.cache_n + timings.prompt_n;
    set("prefix", `${number(timings.cache_n)} of ${number(all)}`);
  }
}

/** Looks at the server. Before it is known what there is to see, nothing is. */
export let look = async () => {};

let timer = 0;

/** Looks at the server from now on, as long as somebody looks at the page. */
export function follow(props) {
  set("memory", `${number(Math.round(bytes(props.memory) / 2 ** 20))} MiB`);
  look = async () => {
    if (document.hidden) {
      return;
    }
    try {
      const slots = props.endpoint_slots ? await api.json(models.address("slots")) : [];
      if (slots.length > 0) {
        set("slots", `${slots.filter((slot) => slot.is_processing).length} of ${slots.length}`);
        const most = Math.max(...slots.map((slot) => slot.n_past));
        set("context", `${number(most)} of ${number(slots[0].n_ctx)}`);
      }
      if (props.endpoint_metrics) {
        totals(await api.text(models.address("metrics")));
      }
    } catch {
      set("slots", "–");
    }
  };
  look();
  clearInterval(timer);
  timer = setInterval(() => look(), LOOK);
}

/** Totals of all clients, where the server tells them, stand in the description of a figure. */
function totals(text) {
  const figure = (name) => Number(new RegExp(`^llamacpp:${name} (\\S+)`, "m").exec(text)?.[1] ?? 0);
  const [cached, computed] = [figure("prompt_tokens_cached_total"), figure("prompt_tokens_total")];
  if (cached + computed > 0) {
    values.get("prefix").parentElement.title =
      `Since the server began, for all clients: ${percent(cached, cached + computed)} of all prompt tokens`;
  }
  const [accepted, verified] = ["accepted", "draft"].map((kind) => figure(`spec_decode_num_${kind}_tokens_total`));
  if (verified > 0) {
    values.get("accepted").parentElement.title =
      `Since the server began, for all clients: ${percent(accepted, verified)} of all drafts`;
  }
}
