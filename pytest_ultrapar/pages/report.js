"use strict";
(() => {
  const { data, element, duration, told, talked, wrote, listed } = page;
  data.cases.forEach((line, at) => { line.shard = data.shards[at]; });

  const fill = async (line, place) => {
    const params = Object.entries(line.params).map(([name, value]) => `${name} = ${value}`);
    const waits = Object.entries(line.waits).map(([name, s]) => `${name} ${duration(s)}`);
    const facts = [
      `model ${data.models[line.model]}`, ...params, `lane ${line.lane || "none"}`, `${line.n_attempts} requests`,
      `${line.tokens} tokens`, ...(line.cost == null ? [] : [`cost ${line.cost}`]),
    ];
    place.append(element("p", "quiet", facts.join("; ")));
    if (waits.length) place.append(element("p", "quiet", `where its time went: ${waits.join(", ")}`));
    if (line.error) place.append(wrote(line.error));
    place.append(...talked(await told(line.shard, line.case_id)));
  };

  const head = (line) => {
    const kind = line.kind ? ` (${line.kind})` : "";
    const name = element("span", "name", `${line.name}${kind}`);
    const why = line.error.split("\n", 1)[0];
    if (why) name.append(element("span", "why", why));
    return [
      element("span", `outcome ${line.outcome}`, line.outcome),
      name,
      element("span", "took", duration(line.duration_s)),
    ];
  };

  listed(data.cases, {
    noun: "cases",
    fields: { outcome: (line) => data.outcomes.indexOf(line.outcome), model: (line) => line.model },
    orders: { longest: (one, other) => (other.duration_s ?? -1) - (one.duration_s ?? -1) },
    head,
    fill,
    near: (line) => `${line.name} ${line.kind} ${line.error}`,
    conversations: async (line) => [await told(line.shard, line.case_id)],
  });
})();
