"use strict";
// Code that all pages share. A model's text is always inserted as text (`textContent`), never as markup.
const page = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const ON_A_PAGE = 50;

  // -- looks ---------------------------------------------------------------------------------------

  const isDark = () => {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  };

  const element = (tag, className, text) => {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };

  // The same format as `duration` in the package.
  const two = (n) => String(n).padStart(2, "0");
  const duration = (s) => {
    if (s == null) return "";
    if (s < 120) return `${s.toFixed(s < 10 ? 2 : 1)} s`;
    const [minutes, hours, days] = [60, 3600, 86400].map((unit) => Math.floor(Math.round(s) / unit));
    if (hours < 2) return `${minutes} min ${two(Math.round(s) % 60)} s`;
    return days < 2 ? `${hours} h ${two(minutes % 60)} min` : `${days} d ${two(hours % 24)} h`;
  };

  // -- conversations -------------------------------------------------------------------------------

  // The entries of an object that have a value.
  const entries = (one) => Object.entries(one).filter(([, said]) => said != null && said !== "");

  const parts = new Map();

  const part = (number) => {
    if (!parts.has(number)) {
      const bytes = Uint8Array.from(atob(byId(`part-${number}`).textContent), (c) => c.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
      parts.set(number, new Response(stream).json());
    }
    return parts.get(number);
  };

  // A column contains a value for each row, or texts and, for each row, the index of its text.
  const value = (column, at) => (column.texts ? column.texts[column.at[at]] : column[at]);
  const row = (columns, at) => Object.fromEntries(Object.entries(columns).map(([name, column]) => [name, value(column, at)]));

  const told = async (shard, caseId) => {
    if (shard == null) return null;
    const found = await part(shard);
    const number = found.cases.indexOf(caseId);
    const own = ({ case: of, columns }) => of.flatMap((one, at) => (one === number ? [row(columns, at)] : []));
    return {
      scores: own(found.scores).flatMap(entries).map(([name, score]) => `${name} ${score}`),
      messages: own(found.messages).map((one) => ({ who: "", ...Object.fromEntries(entries(one)) })),
      attempts: own(found.attempts),
    };
  };

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
    const columns = ["turn", "attempt", "lane", "outcome", "status", "waited", "took", "tokens_in", "tokens_out"];
    for (const text of columns) {
      const cell = element("th", "", text.replace("_", " "));
      cell.scope = "col";
      head.append(cell);
    }
    const body = made.createTBody();
    for (const one of attempts) {
      const line = body.insertRow();
      for (const name of columns) {
        const is_time = name === "waited" || name === "took";
        line.insertCell().textContent = is_time ? duration(one[name]) : (one[name] ?? "");
      }
    }
    const scroll = element("div", "scroll");
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "group");
    scroll.setAttribute("aria-label", "attempts");
    scroll.append(made);
    return scroll;
  };

  const talked = (all) => {
    if (!all) return [element("p", "quiet", "The conversation was left out to keep this page small; see the transcripts table in the run's directory.")];
    const scores = all.scores.length ? [element("p", "quiet", `scores: ${all.scores.join(", ")}`)] : [];
    return [...scores, ...all.messages.map(message), ...(all.attempts.length ? [tried(all.attempts)] : [])];
  };

  const wrote = (error) => {
    const made = element("pre", "", error);
    made.tabIndex = 0;
    return made;
  };

  // Show a part of a long text, and a button for the rest.
  const offerRest = (place) => {
    for (const body of place.querySelectorAll("pre")) {
      if (body.scrollHeight <= body.clientHeight + 1) continue;
      const more = element("button", "more", `Show all ${body.textContent.length.toLocaleString("en")} characters`);
      more.type = "button";
      more.addEventListener("click", () => {
        body.style.maxHeight = "none";
        body.focus();
        more.remove();
      });
      body.after(more);
    }
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
      if (!place.childElementCount) Promise.resolve(fill(place)).then(() => offerRest(place));
    });
    made.append(button, place);
    return made;
  };

  // Shows the matching lines in pages; `noun` is their name. `fields` maps the id of a filter to the index of a
  // line's value; `head` and `fill` show a line. A search reads `near`, and then `conversations` if the user chose so.
  const listed = (lines, { noun, fields, orders = {}, head, fill, near, conversations }) => {
    const chosen = { page: 0, dimension: null, value: null };
    let found = lines;
    let n_unseen = 0;

    const show = () => {
      const n_pages = Math.max(1, Math.ceil(found.length / ON_A_PAGE));
      chosen.page = Math.min(chosen.page, n_pages - 1);
      const start = chosen.page * ON_A_PAGE;
      const shown = found.slice(start, start + ON_A_PAGE);
      byId("list").replaceChildren(
        ...shown.map((line, at) => item(start + at, head(line), (place) => fill(line, place))),
      );
      const by = data.dimensions[chosen.dimension];
      const what = by?.name ? `, ${by.name} = ${by.values[chosen.value]}` : "";
      const unseen = n_unseen ? `; ${n_unseen} conversations are not on this page and were not searched` : "";
      byId("count").textContent = `${found.length} of ${lines.length} ${noun}${what}${unseen}`;
      byId("page").textContent = `page ${chosen.page + 1} of ${n_pages}`;
      byId("back").disabled = chosen.page === 0;
      byId("next").disabled = chosen.page === n_pages - 1;
    };

    const isSaid = (all, words) =>
      all.messages
        .flatMap((said) => Object.values(said).map(String))
        .some((text) => text.toLowerCase().replace(/\s+/g, " ").includes(words));

    let asked = 0;
    const filter = async () => {
      const number = ++asked;
      const words = byId("search").value.trim().toLowerCase().replace(/\s+/g, " ");
      const deep = byId("deep").checked;
      const wanted = Object.entries(fields).filter(([id]) => byId(id)?.value);
      const kept = [];
      let n_left_out = 0;
      for (const line of lines) {
        if (wanted.some(([id, of]) => of(line) !== Number(byId(id).value))) continue;
        if (chosen.dimension !== null && line.at[chosen.dimension] !== chosen.value) continue;
        let fits = !words || near(line).toLowerCase().includes(words);
        if (!fits && deep) {
          const all = await conversations(line);
          const here = all.filter((one) => one !== null);
          fits = here.some((one) => isSaid(one, words));
          if (!fits) n_left_out += all.length - here.length;
        }
        if (fits) kept.push(line);
        // The user has typed more in the meantime.
        if (number !== asked) return;
      }
      const order = orders[byId("order")?.value];
      if (order) kept.sort(order);
      found = kept;
      n_unseen = n_left_out;
      chosen.page = 0;
      show();
    };

    byId("filters").addEventListener("submit", (event) => event.preventDefault());
    for (const id of ["search", "deep", "order", ...Object.keys(fields)]) byId(id)?.addEventListener("input", filter);
    byId("clear").addEventListener("click", () => {
      byId("filters").reset();
      chosen.dimension = chosen.value = null;
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
        chosen.dimension = Number(cell.dataset.dimension);
        chosen.value = Number(cell.dataset.value);
        filter().then(() => byId("cases").scrollIntoView());
      });
    }
    show();
  };

  // -- clicks --------------------------------------------------------------------------------------

  byId("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  });
  for (const select of document.querySelectorAll(".dimension")) {
    select.addEventListener("input", () => {
      for (const one of select.closest("section").querySelectorAll(".heat")) {
        one.hidden = one.dataset.dimension !== select.value;
      }
    });
  }

  // -- tooltips ------------------------------------------------------------------------------------

  // The tooltip of a drawing. A drawing over time shows the tooltip of the slice under the pointer.
  const said = ({ dataset }, { left, width }, x) => {
    const { tip, values, step } = dataset;
    if (!values) return tip;
    const slices = values.split("|");
    const at = Math.min(slices.length - 1, Math.max(0, Math.floor(((x - left) / width) * slices.length)));
    return `${tip}${slices[at]} at ${duration(at * step)}`;
  };
  const point = ({ target, clientX, clientY }) => {
    const one = target.closest?.("[data-tip]");
    const tip = byId("tip");
    tip.hidden = !one;
    if (!one) return;
    tip.textContent = said(one, one.getBoundingClientRect(), clientX);
    tip.style.left = `${Math.max(4, Math.min(clientX + 12, innerWidth - tip.offsetWidth - 4))}px`;
    tip.style.top = `${clientY > innerHeight / 2 ? clientY - tip.offsetHeight - 12 : clientY + 16}px`;
  };
  for (const how of ["pointermove", "pointerdown"]) addEventListener(how, point);
  addEventListener("scroll", () => (byId("tip").hidden = true), true);

  return { data, element, duration, entries, row, told, talked, wrote, listed };
})();
