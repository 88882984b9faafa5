// The example: pictures of dots that need no files. How many there are is known, so that two practise and one
// is gold; the same dots every time.

// Random numbers from a seed (mulberry32).
function randomFrom(seed) {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let x = Math.imul(state ^ (state >>> 15), 1 | state);
    x = (x + Math.imul(x ^ (x >>> 7), 61 | x)) ^ x;
    return ((x ^ (x >>> 14)) >>> 0) / 4294967296;
  };
}

// Dots that do not overlap much, in a frame of 400 × 280.
function dots(n, seed) {
  const random = randomFrom(seed);
  const placed = [];
  for (let tries = 0; placed.length < n; tries++) {
    const [x, y] = [14 + 372 * random(), 14 + 252 * random()];
    if (tries > 40 * n || placed.every(([a, b]) => Math.hypot(a - x, b - y) > 13)) placed.push([x, y]);
  }
  const path = placed.map(([x, y]) => `M${x.toFixed(0)} ${y.toFixed(0)}h0`).join("");
  const drawn = `<svg xmlns="http://www.w3.org/2000/svg" width="400" height="280"><rect width="400" height="280" fill="#fdf6ec"/><path d="${path}" stroke="#1f5fa8" stroke-width="10" stroke-linecap="round"/></svg>`;
  return `data:image/svg+xml,${encodeURIComponent(drawn)}`;
}

const COUNTS = [37, 84, 52, 118, 66, 29, 143, 91, 75, 104];

export function example() {
  const row = (name, n, seed, kind, truth) => ["", name, dots(n, seed), kind, truth].slice(1).map((cell) => `"${cell}"`).join(",");
  const rows = [
    row("practice 1", 24, 101, "practice", 24), row("practice 2", 61, 102, "practice", 61), row("check", 48, 103, "gold", 48),
    ...COUNTS.map((n, k) => row(`dots ${k + 1}`, n, k + 1, "real", "")),
  ];
  return {
    title: "How many dots?",
    instructions: "Estimate how many dots each image shows.\n\n- **Do not count** one by one: look for about *ten seconds*.\n- If you cannot tell, skip.",
    kind: "number", text: "How many dots do you see?", unit: "dots", min: "1", max: "500",
    tasks: `name,image,kind,truth\n${rows.join("\n")}`,
    price: "0.05", budget: "10", currency: "EUR", half: "8", most: "12",
  };
}
