"use strict";
(() => {
  const { data, element, duration, told, talked, wrote, listed } = page;

  const side = async (title, one, caseId) => {
    const made = element("section");
    made.append(element("h3", "", title));
    const facts = [`${one.outcome}${one.kind ? ` (${one.kind})` : ""}`, duration(one.duration_s)];
    made.append(element("p", "quiet", facts.join("; ")));
    if (one.error) made.append(wrote(one.error));
    made.append(...talked(await told(one.shard, caseId)));
    return made;
  };

  const fill = async (flip, place) => {
    const params = Object.entries(flip.params).map(([name, value]) => `${name} = ${value}`);
    const both = element("div", "both");
    place.append(element("p", "quiet", [`model ${data.models[flip.model]}`, ...params, data.turns[flip.turn]].join("; ")), both);
    both.append(
      await side("before", flip.before, flip.case_id),
      await side("now", flip.now, flip.case_id),
    );
  };

  const head = (flip) => {
    const turn = element("span", "turn");
    turn.append(
      element("span", `outcome ${flip.before.outcome}`, flip.before.outcome),
      " → ",
      element("span", `outcome ${flip.now.outcome}`, flip.now.outcome),
    );
    return [turn, element("span", "name", flip.name), element("span", "took", data.models[flip.model])];
  };

  listed(data.flips, {
    noun: "flips",
    fields: { turn: (flip) => flip.turn, model: (flip) => flip.model },
    head,
    fill,
    near: (flip) => [flip.name, ...[flip.before, flip.now].map((one) => `${one.kind} ${one.error}`)].join(" "),
    conversations: (flip) => Promise.all([flip.before, flip.now].map((one) => told(one.shard, flip.case_id))),
  });
})();
