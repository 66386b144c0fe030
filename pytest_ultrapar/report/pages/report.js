"use strict";
(() => {
  const { data, element, duration, entries, row, told, talked, wrote, listed } = page;
  const lines = data.cases.case_id.map((_, number) => ({
    kind: "", error: "", ...Object.fromEntries(entries(row(data.cases, number))),
    number, shard: data.shards[number], at: data.at.map((column) => column[number]),
  }));

  const fill = async (line, place) => {
    const params = entries(row(data.params, line.number)).map(([name, value]) => `${name} = ${value}`);
    const parts = entries(row(data.parts, line.number)).filter(([, s]) => s).map(([name, s]) => `${name} ${duration(s)}`);
    const began = line.duration_s == null ? [] : [
      `${duration(line.line_s)} in the queue before the case began`,
      `${duration(line.duration_s)} from its first lease to its end${parts.length ? `: ${parts.join(", ")}` : ""}`,
    ];
    const facts = [
      `model ${data.models[line.model]}`, ...params, `lane ${line.lane || "none"}`, `${line.n_attempts} requests`,
      `${line.tokens} tokens`, ...(line.cost == null ? [] : [`cost ${line.cost}`]),
    ];
    place.append(element("p", "quiet", facts.join("; ")));
    // A shortened name cannot select the case.
    if (data.again !== null && !line.name.endsWith(" characters]")) {
      const again = element("p", "quiet", "run again: ");
      again.append(element("code", "", `${data.again} '${line.name.replaceAll("'", `'"'"'`)}'`));
      place.append(again);
    }
    if (began.length) place.append(element("p", "quiet times", `where the time went: ${began.join("; ")}`));
    if (line.error) place.append(wrote(line.error));
    place.append(...talked(await told(line.shard, line.case_id)));
  };

  const inAll = (line) => (line.duration_s == null ? -1 : line.line_s + line.duration_s);

  const head = (line) => {
    const kind = line.kind ? ` (${line.kind})` : "";
    const name = element("span", "name", `${line.name}${kind}`);
    const why = line.error.split("\n", 1)[0];
    if (why) name.append(element("span", "why", why));
    const took = element("span", "took", duration(line.duration_s));
    if (line.line_s >= 0.005) took.append(element("span", "line", `after ${duration(line.line_s)} in the queue`));
    return [
      element("span", `outcome ${line.outcome}`, line.outcome),
      name,
      took,
    ];
  };

  listed(lines, {
    noun: "cases",
    fields: { outcome: (line) => data.outcomes.indexOf(line.outcome), model: (line) => line.model },
    orders: {
      longest: (one, other) => (other.duration_s ?? -1) - (one.duration_s ?? -1),
      longest_in_all: (one, other) => inAll(other) - inAll(one),
    },
    head,
    fill,
    near: (line) => `${line.name} ${line.kind} ${line.error}`,
    conversations: async (line) => [await told(line.shard, line.case_id)],
  });
})();
