-- Distributes cases over the hosts of a run. `claim_protocol.py` defines the calls and the answers.
--
-- Cases have numbers from 0. The cases of a line (one model in one group, or free) are contiguous.
-- A case is unclaimed, claimed by a host, or done. Each line has a cursor: all cases below it have
-- been claimed. Cases that were returned since then are in `back`. So only the bitmap needs space
-- for every case.
--
-- KEYS  1 run (hash)    the facts that the hosts agreed on, and counts
--       2 hosts (hash)  number -> JSON of the host's state for people
--       3 seen (zset)   number -> time of its last call, ms
--       4 open (hash)   number -> how many of its claimed cases have episodes that have not ended
--       5 given (hash)  number -> JSON of the number of its last call and the cases that it got
--       6 cursors (hash) line -> first case that was never claimed
--       7 back (zset)   case -> case
--       8 claims (zset) case -> number of the host
--       9 failed (zset) case -> case: done without an answer
--      10 done (bitmap)
--      11 groups (hash) open:GROUP -> how many of its cases, on all hosts, have open episodes;
--                       start:GROUP -> when all groups that it waits for were over, ms;
--                       lock:LOCK -> the group that has the lock
--      12 held (hash)  number of a host -> JSON of its part of `open:GROUP`
-- ARGV  1 JSON of the call (`Call` in claim_protocol.py)
-- Answer: msgpack of a `ClaimAnswer`, with its tag first.
local RUN, HOSTS, SEEN, OPEN, GIVEN = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local CURSORS, BACK, CLAIMS, FAILED, DONE = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local GROUPS, HELD = KEYS[11], KEYS[12]
local call = cjson.decode(ARGV[1])
-- Without this, Redis before 7 refuses to write after TIME.
if redis.replicate_commands then redis.replicate_commands() end
local time = redis.call('TIME')
local now_ms = math.floor(time[1] * 1000 + time[2] / 1000)

local function number(key, field) return tonumber(redis.call('HGET', key, field) or '0') end
local function add(field, n) if n ~= 0 then redis.call('HINCRBY', RUN, field, n) end end

local function set_open(host, n)
  local before = number(OPEN, host)
  redis.call('HSET', OPEN, host, n)
  add('n_open', n - before)
end

-- Set a host's open cases of each group.
local function set_held(host, held)
  local before = redis.call('HGET', HELD, host)
  for _, one in ipairs(before and cjson.decode(before) or {}) do
    redis.call('HINCRBY', GROUPS, 'open:' .. one[1], 0 - one[2])
  end
  for _, one in ipairs(held) do redis.call('HINCRBY', GROUPS, 'open:' .. one[1], one[2]) end
  if #held > 0 then
    redis.call('HSET', HELD, host, cjson.encode(held))
  elseif before then
    redis.call('HDEL', HELD, host)
  end
end

-- Remove a host: other hosts may claim its cases.
local function release(host)
  local cases = redis.call('ZRANGEBYSCORE', CLAIMS, host, host)
  for _, case in ipairs(cases) do redis.call('ZADD', BACK, case, case) end
  redis.call('ZREMRANGEBYSCORE', CLAIMS, host, host)
  set_open(host, 0)
  set_held(host, {})
  redis.call('HDEL', OPEN, host)
  redis.call('HDEL', HOSTS, host)
  redis.call('HDEL', GIVEN, host)
  redis.call('ZREM', SEEN, host)
end

-- Remove silent hosts, and report this to the others. A caller that was silent itself cannot know
-- whether they are dead: all hosts may have lost their connection to the server.
local function forget_silent(silent_ms, knows)
  for _, host in ipairs(redis.call('ZRANGEBYSCORE', SEEN, '-inf', now_ms - silent_ms)) do
    local text = redis.call('HGET', HOSTS, host)
    release(host)
    local readable, told = pcall(cjson.decode, text or '')
    if knows and readable and type(told) == 'table' and type(told.name) == 'string' then
      redis.call('HSET', RUN, 'n_dead', (number(RUN, 'n_dead') or 0) + 1, 'last_dead', told.name)
    end
  end
end

local function finish(cases, has_failed)
  for _, case in ipairs(cases) do
    redis.call('ZREM', CLAIMS, case)
    redis.call('ZREM', BACK, case)
    if redis.call('SETBIT', DONE, case, 1) == 0 then
      add('n_done', 1)
      if has_failed then redis.call('ZADD', FAILED, case, case) end
    elseif not has_failed then
      -- The case ran twice, and one run got an answer.
      redis.call('ZREM', FAILED, case)
    end
  end
end

-- Removed hosts are forgotten. But a host that finished a case has results, so keep its name.
local function note_finisher(name)
  if #call.done + #call.failed > 0 then redis.call('HSET', RUN, 'finisher:' .. name, 1) end
end

-- Give a host back the cases that it had before it was treated as dead, or before the server forgot
-- them. Returns the cases that other hosts have now, or that are done.
local function take_again(host, cases)
  local lost = {}
  for _, case in ipairs(cases) do
    if redis.call('GETBIT', DONE, case) == 0 and not redis.call('ZSCORE', CLAIMS, case) then
      redis.call('ZREM', BACK, case)
      redis.call('ZADD', CLAIMS, host, case)
    else
      lost[#lost + 1] = case
    end
  end
  return lost
end

local lines, groups, group_of = nil, nil, {}
local function read_rules()
  lines = cjson.decode(redis.call('HGET', RUN, 'lines'))
  groups = cjson.decode(redis.call('HGET', RUN, 'groups'))
  for group, rule in ipairs(groups) do
    for line = rule.lines[1] + 1, rule.lines[2] do group_of[line] = group end
  end
end

-- Read how many cases are left in each line and open in each group.
-- Tables here count from 1.
local left, open, locks = {}, {}, {}
local function look_at(line)
  local cursor = tonumber(redis.call('HGET', CURSORS, line - 1) or lines[line][1])
  left[line] = lines[line][2] - cursor
    + redis.call('ZCOUNT', BACK, lines[line][1], '(' .. lines[line][2])
end
local function look()
  locks = {}
  if not lines then read_rules() end
  for line = 1, #lines do look_at(line) end
  for group = 1, #groups do open[group] = number(GROUPS, 'open:' .. group - 1) end
end

local function n_left(group)
  local n = 0
  for line = groups[group].lines[1] + 1, groups[group].lines[2] do n = n + left[line] end
  return n
end

local function is_over(group) return open[group] == 0 and n_left(group) == 0 end

-- Whether all groups that a group waits for are over, and its delay has passed.
local function is_startable(group)
  local rule = groups[group]
  for _, before in ipairs(rule.after) do
    if not is_over(before + 1) then return false end
  end
  if rule.start_after_ms == 0 then return true end
  if #rule.after == 0 then return number(RUN, 'began_ms') + rule.start_after_ms <= now_ms end
  redis.call('HSETNX', GROUPS, 'start:' .. group - 1, now_ms)
  return number(GROUPS, 'start:' .. group - 1) + rule.start_after_ms <= now_ms
end

-- Whether a group that could start has its lock, or may take it. A lock is free if the group that
-- has it is over, or has no open case and cannot continue because groups that it waits for have
-- cases again.
local function may_lock(group)
  local lock = groups[group].lock
  if lock < 0 then return true end
  local known = locks[lock]
  if not known then
    known = { n_open = 0 }
    locks[lock] = known
    local holder = redis.call('HGET', GROUPS, 'lock:' .. lock)
    if holder then
      holder = tonumber(holder) + 1
      if not is_over(holder) and (open[holder] > 0 or is_startable(holder)) then known.first = holder end
    end
    for other, rule in ipairs(groups) do
      if rule.lock == lock then
        if open[other] > 0 then known.n_open = known.n_open + 1 end
        if not known.first and n_left(other) > 0 and is_startable(other) then known.first = other end
      end
    end
  end
  -- Other groups may have open cases without the lock, since a server that forgets loses all locks.
  local n_others = known.n_open - (open[group] > 0 and 1 or 0)
  return n_others == 0 and known.first == group
end

-- How many cases of a line may be claimed now.
local function claimable(line)
  local group = group_of[line]
  if not group or left[line] == 0 then return left[line] end
  local rule = groups[group]
  local n = left[line]
  if rule.at_once > 0 then n = math.min(n, math.max(0, rule.at_once - open[group])) end
  if n == 0 or not is_startable(group) or not may_lock(group) then return 0 end
  return n
end

-- Give a host up to n cases of a line, first the returned ones. Skip cases that were done before the
-- server forgot its cursors, or that have been claimed again since then.
local function give(host, line, n, given)
  n = math.min(n, claimable(line))
  if n <= 0 then return end
  local before = #given
  local first, last = lines[line][1], lines[line][2]
  for _, case in ipairs(redis.call('ZRANGEBYSCORE', BACK, first, '(' .. last, 'LIMIT', 0, n)) do
    redis.call('ZREM', BACK, case)
    redis.call('ZADD', CLAIMS, host, case)
    given[#given + 1] = tonumber(case)
    n = n - 1
  end
  local cursor = tonumber(redis.call('HGET', CURSORS, line - 1) or first)
  local at = cursor
  -- Limit how many cases are skipped, so that one call does not block the server for long.
  local stop = math.min(last, cursor + n + 10000)
  while n > 0 and at < stop do
    if redis.call('GETBIT', DONE, at) == 0 and not redis.call('ZSCORE', CLAIMS, at) then
      redis.call('ZADD', CLAIMS, host, at)
      given[#given + 1] = at
      n = n - 1
    end
    at = at + 1
  end
  if at > cursor then redis.call('HSET', CURSORS, line - 1, at) end
  look_at(line)
  locks = {}
  local group, n_given = group_of[line], #given - before
  if not group or n_given == 0 then return end
  open[group] = open[group] + n_given
  if groups[group].lock >= 0 then
    redis.call('HSET', GROUPS, 'lock:' .. groups[group].lock, group - 1)
  end
  return group, n_given
end

-- The time until hosts get cases. If the server forgot the run, hosts first report their claims.
local function waits_ms()
  return math.max(0, number(RUN, 'opens_ms') - now_ms)
end

-- Whether an operator has drained the host.
local function is_drained(host)
  local text = redis.call('HGET', HOSTS, host)
  return text and redis.call('HEXISTS', RUN, 'drain:' .. cjson.decode(text).name) == 1
end

local function expire()
  for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, call.keep_ms) end
end

local function answer(host, given)
  look()
  local can, n_unclaimed = {}, 0
  for line = 1, #lines do
    can[line] = claimable(line)
    n_unclaimed = n_unclaimed + left[line]
  end
  -- Hosts that share limits read these: they need the number of future cases.
  redis.call('HSET', RUN, 'claimable', cjson.encode(can), 'unclaimed', cjson.encode(left))
  local n_open = number(RUN, 'n_open')
  local elected = redis.call('HGET', RUN, 'elected')
  if n_unclaimed == 0 and n_open == 0 and waits_ms() == 0 then
    if not elected then
      elected = tostring(host)
      redis.call('HSET', RUN, 'elected', elected)
    end
  elseif elected then
    redis.call('HDEL', RUN, 'elected')
    elected = false
  end
  return {
    'ok', tonumber(host), redis.call('ZCARD', SEEN), number(RUN, 'n_done'), redis.call('ZCARD', FAILED),
    n_open, elected == tostring(host), waits_ms(), left, can, given,
    is_drained(host), number(RUN, 'n_dead') or 0, redis.call('HGET', RUN, 'last_dead') or '',
  }
end

if call.op == 'reopen' then
  -- Make cases claimable again that are done but have no result.
  local n = 0
  for _, case in ipairs(call.cases) do
    if redis.call('SETBIT', DONE, case, 0) == 1 then
      redis.call('ZREM', FAILED, case)
      redis.call('ZADD', BACK, case, case)
      n = n + 1
    end
  end
  add('n_done', -n)
  expire()
  return cmsgpack.pack({'reopened', n})
end

if call.op == 'join' then
  forget_silent(call.silent_ms, not call.comes_back)
  local identity = redis.call('HGET', RUN, 'identity')
  if identity and identity ~= call.identity then return cmsgpack.pack({'other', identity}) end
  local hosts = redis.call('HGETALL', HOSTS)
  for i = 1, #hosts, 2 do
    local other = cjson.decode(hosts[i + 1])
    if other.name == call.name then
      if other.life ~= call.life then
        local seen_ms = tonumber(redis.call('ZSCORE', SEEN, hosts[i]) or now_ms)
        return cmsgpack.pack({'same name', now_ms - seen_ms})
      end
      -- The host has joined already, but the answer was lost.
      release(hosts[i])
    end
  end
  if not identity then
    -- Remove the rest of a run of that name, in case only a part of it was forgotten.
    redis.call('DEL', unpack(KEYS))
    redis.call('HSET', RUN, 'identity', call.identity, 'lines', cjson.encode(call.lines),
      'groups', cjson.encode(call.groups), 'n_done', 0, 'n_open', 0, 'next', 0, 'began_ms', now_ms,
      -- If a host comes back to a missing run, the server forgot the run: wait for the other hosts.
      'opens_ms', call.comes_back and now_ms + call.silent_ms or 0)
  end
  if not call.comes_back then redis.call('HDEL', RUN, 'drain:' .. call.name) end
  local host = redis.call('HINCRBY', RUN, 'next', 1)
  redis.call('ZADD', SEEN, now_ms, host)
  redis.call('HSET', HOSTS, host, cjson.encode({
    name = call.name, life = call.life, joined_ms = now_ms, said = call.said}))
  finish(call.done, false)
  finish(call.failed, true)
  note_finisher(call.name)
  local lost = take_again(host, call.holding)
  set_open(host, #call.holding)
  set_held(host, call.open_of)
  if not call.comes_back then
    -- A join makes failed cases run again, unless other hosts are there or cases are left.
    look()
    local n_unclaimed = 0
    for _, n in ipairs(left) do n_unclaimed = n_unclaimed + n end
    if n_unclaimed == 0 and number(RUN, 'n_open') == 0 and redis.call('ZCARD', SEEN) == 1 then
      for _, case in ipairs(redis.call('ZRANGE', FAILED, 0, -1)) do
        redis.call('SETBIT', DONE, case, 0)
        redis.call('ZADD', BACK, case, case)
        add('n_done', -1)
      end
      redis.call('DEL', FAILED)
    end
  end
  expire()
  local said = answer(host, {})
  said[#said + 1] = lost
  return cmsgpack.pack(said)
end

local host = call.host
local hosted = redis.call('HGET', HOSTS, host)
-- If the run is incomplete on the server, the host must join again.
local is_whole = redis.call('HEXISTS', RUN, 'lines') == 1
if not is_whole or not hosted or cjson.decode(hosted).life ~= call.life then
  return cmsgpack.pack({'unknown'})
end
if call.op == 'leave' then
  finish(call.done, false)
  finish(call.failed, true)
  note_finisher(cjson.decode(hosted).name)
  release(host)
  expire()
  return cmsgpack.pack(nil)
end
local seen_ms = tonumber(redis.call('ZSCORE', SEEN, host) or '0')
redis.call('ZADD', SEEN, now_ms, host)
forget_silent(call.silent_ms, seen_ms > now_ms - call.silent_ms)
local last = redis.call('HGET', GIVEN, host)
last = last and cjson.decode(last) or {seq = -1}
if last.seq == call.seq then
  -- The call was executed before, but its answer was lost.
  local given = {}
  for _, case in ipairs(last.given) do given[#given + 1] = case end
  return cmsgpack.pack(answer(host, given))
end
finish(call.done, false)
finish(call.failed, true)
set_held(host, call.open_of)
local given = {}
if #call.wants > 0 and waits_ms() == 0 and not is_drained(host) then
  local held, place = call.open_of, {}
  for i, one in ipairs(held) do place[one[1] + 1] = i end
  look()
  for _, want in ipairs(call.wants) do
    local group, n = give(host, want[1] + 1, want[2], given)
    if group and place[group] then
      held[place[group]][2] = held[place[group]][2] + n
    elseif group then
      held[#held + 1] = {group - 1, n}
      place[group] = #held
    end
  end
  set_held(host, held)
end
-- The given cases count as open from now on, even before the host knows them.
set_open(host, call.open + #given)
redis.call('HSET', GIVEN, host, cjson.encode({seq = call.seq, given = given}))
local told = cjson.decode(hosted)
told.said, told.n_done = call.said, (told.n_done or 0) + #call.done + #call.failed
redis.call('HSET', HOSTS, host, cjson.encode(told))
note_finisher(told.name)
expire()
return cmsgpack.pack(answer(host, given))
