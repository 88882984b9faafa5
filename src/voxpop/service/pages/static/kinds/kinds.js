// The kinds of question. A control has a `node`, `value()` (null while there is none), `problem()` (why the
// value cannot be sent, in words, or null), `state()` and `restore(state)` for drafts, `focus()`, `lock(on)`
// and `reveal(truth)`, and may have a `side` where buttons go. It calls `changed()` whenever its value may have changed.

import { number } from "./number.js";
import { rating } from "./rating.js";
import { slider } from "./slider.js";
import { box, point } from "./marks.js";

const KINDS = { number, slider, rating, point, box };
export const onImage = (kind) => kind === "point" || kind === "box";

export function control(question, content, changed, submit) {
  return KINDS[question.kind](question, content, changed, submit);
}
