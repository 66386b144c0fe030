"use strict";
// What the scripts of all pages share. Everything that a model wrote reaches a page as text
// (`textContent`), never as markup.
const page = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const ON_A_PAGE = 50;

  // -- plots ---------------------------------------------------------------------------------------

  const isDark = () => {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  };

  const colours = () => {
    const ink = isDark() ? "#e6e8ea" : "#1d2126";
    const line = isDark() ? "#343a41" : "#dcdfe3";
    const axis = { labelColor: ink, titleColor: ink, domainColor: line, tickColor: line, gridColor: line };
    return {
      background: null,
      axis,
      legend: { labelColor: ink, titleColor: ink },
      view: { stroke: line },
      // Okabe and Ito's colours, which colour-blind people tell apart.
      range: { category: ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b3a300", "#7f7f7f"] },
      font: "system-ui, sans-serif",
    };
  };

  // Vega-Lite warns that a plot with a height for each row does not fit a given one: nobody gave one.
  const quiet = { level: () => quiet, error: () => quiet, warn: () => quiet, info: () => quiet, debug: () => quiet };

  const draw = () => {
    for (const [key, spec] of Object.entries(data.plots)) {
      const place = byId(`plot-${key}`);
      const width = Math.max(260, place.clientWidth - 8);
      const sized = { ...spec, width, autosize: { type: "fit-x", contains: "padding" } };
      const compiled = vegaLite.compile(sized, { config: colours(), logger: quiet }).spec;
      // Without `ast` Vega would make functions of texts, which the page's policy forbids.
      const flow = vega.parse(compiled, null, { ast: true });
      const view = new vega.View(flow, { expr: globalThis.expressionInterpreter, renderer: "svg", hover: false });
      place.replaceChildren();
      view.initialize(place).runAsync();
    }
  };

  const element = (tag, className, text) => {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };

  const seconds = (s) => (s == null ? "" : `${s.toPrecision(3)} s`);

  // -- conversations -------------------------------------------------------------------------------

  const parts = new Map();

  const part = (number) => {
    if (!parts.has(number)) {
      const bytes = Uint8Array.from(atob(byId(`part-${number}`).textContent), (c) => c.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      parts.set(number, new Response(stream).json());
    }
    return parts.get(number);
  };

  const told = async (shard, caseId) => (shard == null ? null : (await part(shard))[caseId]);

  const message = (said) => {
    const role = said.who.split(" ").pop();
    const made = element("div", `message ${["assistant", "user", "system", "tool"].includes(role) ? role : ""}`);
    made.append(element("div", "who", `turn ${said.turn}, ${said.who}${said.name ? ` ${said.name}` : ""}`));
    for (const [what, text] of Object.entries(said)) {
      if (["turn", "who", "name"].includes(what)) continue;
      if (what !== "content") made.append(element("div", "who", what.replace("_", " ")));
      const body = element("pre", "", text);
      body.tabIndex = 0;
      made.append(body);
    }
    return made;
  };

  const tried = (attempts) => {
    const made = element("table");
    const head = made.createTHead().insertRow();
    for (const text of ["turn", "attempt", "lane", "outcome", "status", "waited", "took", "tokens in", "out"]) {
      const cell = element("th", "", text);
      cell.scope = "col";
      head.append(cell);
    }
    const body = made.createTBody();
    for (const one of attempts) {
      const row = body.insertRow();
      one.forEach((value, at) => {
        row.insertCell().textContent = at === 5 || at === 6 ? seconds(value) : (value ?? "");
      });
    }
    const scroll = element("div", "scroll");
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "group");
    scroll.setAttribute("aria-label", "attempts");
    scroll.append(made);
    return scroll;
  };

  const talked = (all) => {
    if (!all) return [element("p", "quiet", "Its conversation is left out for its size; transcripts has it.")];
    return [...all.messages.map(message), ...(all.attempts.length ? [tried(all.attempts)] : [])];
  };

  const wrote = (error) => {
    const made = element("pre", "", error);
    made.tabIndex = 0;
    return made;
  };

  // -- the list of cases ---------------------------------------------------------------------------

  const item = (number, head, fill) => {
    const made = element("li");
    const button = element("button", "case");
    button.type = "button";
    button.setAttribute("aria-expanded", "false");
    button.append(...head);
    const place = element("div", "detail");
    place.hidden = true;
    place.id = `detail-${number}`;
    button.setAttribute("aria-controls", place.id);
    button.addEventListener("click", () => {
      place.hidden = !place.hidden;
      button.setAttribute("aria-expanded", String(!place.hidden));
      if (!place.childElementCount) fill(place);
    });
    made.append(button, place);
    return made;
  };

  // Pages of what is found, by its `noun`. `fields` are ids of the filters and what a line has of
  // each; `head` and `fill` show a line; `near` is what a search looks into first, `conversations`
  // what was said, if it may look there, too.
  const listed = (lines, { noun, fields, head, fill, near, conversations }) => {
    const chosen = { page: 0, name: "", value: "" };
    let found = lines;

    const show = () => {
      const n_pages = Math.max(1, Math.ceil(found.length / ON_A_PAGE));
      chosen.page = Math.min(chosen.page, n_pages - 1);
      const start = chosen.page * ON_A_PAGE;
      const shown = found.slice(start, start + ON_A_PAGE);
      byId("list").replaceChildren(
        ...shown.map((line, at) => item(start + at, head(line), (place) => fill(line, place))),
      );
      const what = chosen.name || chosen.value ? `, ${chosen.name} = ${chosen.value}` : "";
      byId("count").textContent = `${found.length} of ${lines.length} ${noun}${what}`;
      byId("page").textContent = `page ${chosen.page + 1} of ${n_pages}`;
      byId("back").disabled = chosen.page === 0;
      byId("next").disabled = chosen.page === n_pages - 1;
    };

    const says = async (line, words) => {
      const all = await conversations(line);
      return all.some((one) => one !== null && JSON.stringify(one.messages).toLowerCase().includes(words));
    };

    let asked = 0;
    const filter = async () => {
      const number = ++asked;
      const words = byId("search").value.trim().toLowerCase();
      const wanted = Object.entries(fields).filter(([id]) => byId(id)?.value);
      const kept = [];
      for (const line of lines) {
        if (wanted.some(([id, of]) => of(line) !== byId(id).value)) continue;
        if (chosen.name && line.params[chosen.name] !== chosen.value) continue;
        const fits = !words || near(line).toLowerCase().includes(words);
        if (fits || (byId("deep").checked && (await says(line, words)))) kept.push(line);
        // Somebody has typed on meanwhile.
        if (number !== asked) return;
      }
      found = kept;
      chosen.page = 0;
      show();
    };

    byId("filters").addEventListener("submit", (event) => event.preventDefault());
    for (const id of ["search", "deep", ...Object.keys(fields)]) byId(id)?.addEventListener("input", filter);
    byId("clear").addEventListener("click", () => {
      byId("filters").reset();
      chosen.name = chosen.value = "";
      filter();
    });
    for (const [id, by] of [["back", -1], ["next", 1]]) {
      byId(id).addEventListener("click", () => {
        chosen.page += by;
        show();
      });
    }
    for (const cell of document.querySelectorAll(".cell")) {
      cell.addEventListener("click", () => {
        byId("filters").reset();
        for (const id of Object.keys(fields)) if (cell.dataset[id] && byId(id)) byId(id).value = cell.dataset[id];
        chosen.name = cell.dataset.name;
        chosen.value = cell.dataset.name ? cell.dataset.value : "";
        filter().then(() => byId("cases").scrollIntoView());
      });
    }
    show();
  };

  // -- what is pressed -----------------------------------------------------------------------------

  byId("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    draw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  for (const select of document.querySelectorAll(".dimension")) {
    select.addEventListener("input", () => {
      for (const one of select.closest("section").querySelectorAll(".heat")) {
        one.hidden = one.dataset.dimension !== select.value;
      }
    });
  }
  let resized;
  addEventListener("resize", () => {
    clearTimeout(resized);
    resized = setTimeout(draw, 150);
  });
  draw();

  return { data, element, seconds, told, talked, wrote, listed };
})();
