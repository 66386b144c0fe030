-- The ledger of shares, as a single script. ledger.py describes its rules and its calls. Tests compare
-- the script with a model (tests/ledger_model.py), whose functions have the same names. `ledger_script.py`
-- makes KEYS and ARGV.
--
-- KEYS, all in one slot: ledger (hash: epoch, time, numbers), seen (sorted set: incarnation by time of
-- its last call), dead (hash: incarnation, when it died), clocks, news, rows (hash: a packed row for
-- each name), the caller's own facts (hash), and for each of the caller's rows its shares (hash:
-- incarnation, packed share).
-- ARGV: the call; its rows and lanes; its uses, five numbers for each row. All are msgpack.
-- Answer: fields of the ledger; grant, amount, target, told, spent and closed of each row; news. All
-- are msgpack.

-- ledger.py gives the reasons for these two.
local STOP_MS, EXPIRE_MS = 2000, 5000
-- A longer time between two calls only counts if the caller's clock confirms it.
local SKIP_MS = 500
-- How long a host keeps units of a wider row after a narrower row has gone to other hosts.
local GRACE_MS = 2000
-- The smallest part of a paced row. Each host spaces its part separately, and with few seats its sends
-- wait for each other. With 5 seats per key, and 18 requests per second divided into parts of 9, phase
-- 5.3 on three hosts took 1.05 times as long as on one host. If keys are not divided, it takes 1.03
-- times as long.
local LEAST_PACED = 10
-- The minimum time between two divisions of a row. In a larger cluster it is 1 ms per host.
local RECOMPUTE_MS = 250
-- The maximum number of shares that one call divides again. The next call continues.
local AT_ONCE = 2000
-- A share that would change by this much or less stays the same.
local KEPT_PERCENT = 5
-- If a small row cannot be divided equally between runs, the runs take turns. Each turn lasts for this
-- time or, for a paced row, for ten windows if that is longer.
local TURN_MS = 20000
-- The number of cells in a window of counted units. Units are released a window after their cell ends.
local CELLS = 48
-- After this time without use, the script checks whether the hosts that have shares of a row are known.
local FORGOTTEN_MS = 86400000
local WEEK_MS = 604800000
local NEVER = math.huge
local LOST = 9007199254740992
local FIXED = 8
local SHARE, SHARE_BYTES = '<dddddddddd', 80
local HEADER, HEADER_BYTES = '<ddddd', 40

if redis.replicate_commands then redis.replicate_commands() end
local floor, max, min = math.floor, math.max, math.min
local pack, unpacked = cmsgpack.pack, cmsgpack.unpack

local function server_time()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + floor(tonumber(time[2]) / 1000)
end

-- The server's own run_id takes precedence over the one that the host read when it connected: behind a
-- proxy, the server may have changed since then.
local function server_run_id(said)
  local ok, text = pcall(redis.call, 'INFO', 'server')
  return ok and type(text) == 'string' and string.match(text, 'run_id:(%w+)') or said
end

local call = unpacked(ARGV[1])
local host, incarnation, seq, run = call[1], call[2], call[3], call[4]
local call_epoch, peers, news_seen = call[6], call[9], call[10]
local clock, clock_ms, leaving, fresh, heard = call[7], call[8], call[11], call[12], call[13]
local answered_ms, open_days = call[14], call[15]
local key_ledger, key_seen, key_dead, key_clocks = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local key_news, key_rows, key_own = KEYS[5], KEYS[6], KEYS[7]

local fields = redis.call('HMGET', key_ledger, 'epoch', 'born', 'begun', 'closing', 'run_id', 'now',
  'server', 'deaths', 'versions', 'peers', 'reported', 'news', 'lag',
  'last_epoch', 'last_ms', 'shift', 'kept')
local function number(at)
  local found = tonumber(fields[at] or '0')
  if not found or found ~= found or found > LOST or found < -LOST then
    error('a number that no script wrote')
  end
  return found
end
local epoch, born, begun, closing = number(1), number(2), number(3), fields[4] or 'open'
local run_id, now, server = fields[5] or '', number(6), number(7)
local deaths, versions, peers_told = number(8), number(9), number(10)
local reported, news_number, lag = number(11), number(12), number(13)
local last_epoch, last_ms, shift = number(14), number(15), number(16)
-- The number of rows that must exist. If there are fewer, another program removed some.
local kept = number(17)

-- Time, lives and deaths

local function go_on(server_ms)
  if epoch == 0 then now, server = server_ms, server_ms end
  local step = server_ms - server
  local heard_ms, at_ms, lag_ms = clock_ms, now, lag
  local known = redis.call('HGET', key_clocks, clock)
  if known then heard_ms, at_ms, lag_ms = struct.unpack('<ddd', known) end
  local agreed = clock_ms - heard_ms
  if agreed > STOP_MS then agreed = 0 end
  agreed = agreed - (now - at_ms) - (lag - lag_ms)
  if step < 0 then
    lag = lag + max(agreed, 0)
  elseif step > max(agreed, 0) + SKIP_MS then
    local believed = min(max(floor(agreed / 2), 0), SKIP_MS)
    lag = lag + step - believed
    now = now + believed
  else
    now = now + step
  end
  server = server_ms
  if clock_ms >= heard_ms then
    redis.call('HSET', key_clocks, clock, struct.pack('<ddd', clock_ms, now, lag))
  end
end

local function live(id)
  if epoch == 0 then
    epoch = max(server, call_epoch + 1)
    born, begun, run_id = epoch, now, id
    closing = call_epoch > 0 and 'all' or fresh and 'open' or 'expiry'
  elseif id ~= run_id or call_epoch > epoch or redis.call('HLEN', key_rows) < kept then
    epoch = max(server, epoch + 1, call_epoch + 1)
    closing, begun, run_id, peers_told, reported, kept = 'all', now, id, 0, 0, 0
    last_epoch, last_ms = 0, 0
    redis.call('HDEL', key_ledger, 'reports')
    redis.call('DEL', key_seen, key_dead)
  elseif call_epoch > 0 and call_epoch < born then
    closing = 'all'
  end
end

local function bury()
  local gone = redis.call('ZRANGEBYSCORE', key_seen, '-inf', now - EXPIRE_MS, 'WITHSCORES')
  if #gone == 0 then return end
  local old = redis.call('HGETALL', key_dead)
  for at = 1, #old, 2 do
    if now - tonumber(old[at + 1]) > 2 * FORGOTTEN_MS then redis.call('HDEL', key_dead, old[at]) end
  end
  for at = 1, #gone, 2 do
    redis.call('HSET', key_dead, gone[at], tonumber(gone[at + 1]) + EXPIRE_MS)
    redis.call('ZREM', key_seen, gone[at])
    deaths = deaths + 1
  end
end

local dead
local function died_at(who)
  if not dead then
    dead = {}
    local flat = redis.call('HGETALL', key_dead)
    for at = 1, #flat, 2 do dead[flat[at]] = tonumber(flat[at + 1]) end
  end
  return dead[who]
end

-- Rows and shares, packed and unpacked

local specs, lanes, uses, count
local rows, texts, changed_rows = {}, {}, {}

local function lasts(row)
  return row.kind == 'seats' and row.longest or row.kind == 'paced' and row.window or 0
end

local function spent_of(row)
  local sum = 0
  for _, units in pairs(row.cells) do sum = sum + units end
  return sum
end

local function cell_ms(row) return max(floor(row.window / CELLS), 1) end

-- Otherwise an infinite or undefined number would be granted without an error.
local function sound(sum)
  if sum ~= sum or sum == math.huge or sum == -math.huge then error('a row that no script wrote') end
end

local function load_row(name, text)
  local row = { name = name }
  row.version, row.due, row.deaths, row.computed, row.amount = struct.unpack(HEADER, text)
  local rest = unpacked(string.sub(text, HEADER_BYTES + 1))
  row.kind, row.epoch, row.window = rest[1], rest[2], rest[4]
  row.longest, row.out, row.shown, row.told = rest[5], rest[6], rest[7], rest[8]
  row.first_held, row.size, row.since = rest[9], rest[11], rest[12]
  row.awaits, row.unsure = rest[10] == 1 or rest[10] == 2, rest[10] == 2
  row.cells = {}
  for at = 13, #rest, 2 do row.cells[rest[at]] = rest[at + 1] end
  sound(row.version + row.deaths + row.amount + row.window + row.longest + row.out + row.shown
    + row.told + row.first_held + row.size + row.since + spent_of(row))
  return row
end

local function text_of_row(row)
  local rest = { row.kind, row.epoch, row.amount, row.window, row.longest, row.out, row.shown,
    row.told, row.first_held, row.awaits and (row.unsure and 2 or 1) or 0, row.size, row.since }
  for cell, units in pairs(row.cells) do
    rest[#rest + 1] = cell
    rest[#rest + 1] = units
  end
  return struct.pack(HEADER, row.version, row.due, row.deaths, row.computed, row.amount) .. pack(rest)
end

local function load_share(text)
  local share = {}
  share.held, share.grant, share.want, share.unit, share.amount, share.rank, share.target,
    share.decided, share.barred, share.spent = struct.unpack(SHARE, text)
  share.decided = share.decided == 1
  share.run = string.sub(text, SHARE_BYTES + 1)
  sound(share.held + share.grant + share.want + share.unit + share.amount + share.rank + share.target
    + share.barred + share.spent)
  return share
end

local function text_of_share(share)
  return struct.pack(SHARE, share.held, share.grant, share.want, share.unit, share.amount,
    share.rank, share.target, share.decided and 1 or 0, share.barred, share.spent) .. share.run
end

local function out_of(share) return max(share.held, share.grant) end

local function empty(share)
  share.held, share.grant, share.want, share.target, share.amount = 0, 0, 0, 0, 0
end

local function rank(who, what, also)
  local first = tonumber(string.sub(redis.sha1hex(who .. '\n' .. what), 1, 10), 16)
  return first * 4096 + tonumber(string.sub(redis.sha1hex(also), 1, 3), 16)
end

local function complete() return peers_told > 0 and reported >= peers_told end

local function opens(row)
  if closing == 'open' then return -NEVER end
  if closing == 'expiry' then return begun + EXPIRE_MS end
  if row.kind ~= 'counted' then return begun + EXPIRE_MS + lasts(row) end
  if row.awaits and (row.unsure or not complete()) then return begun + EXPIRE_MS + row.window end
  return begun + EXPIRE_MS
end

local function disturb(row)
  row.due = min(row.due, max(now, row.computed + max(RECOMPUTE_MS, row.size)))
end

local function is_due(row)
  return row.due <= now or (row.deaths ~= deaths and row.computed + RECOMPUTE_MS <= now)
end

local function spend(row, units)
  if units <= 0 then return end
  local cell = floor((now + shift) / cell_ms(row))
  row.cells[cell] = (row.cells[cell] or 0) + units
  versions = versions + 1
  row.version = versions
  disturb(row)
end

local function known_spent(row)
  local spent = spent_of(row)
  if not row.awaits then return spent end
  local since_ms = now + shift + EXPIRE_MS - row.window
  local size, certain = cell_ms(row), 0
  for cell, units in pairs(row.cells) do
    if cell * size > since_ms then certain = certain + units end
  end
  return spent + max(row.told - row.first_held + row.since - certain, 0)
end

local function settle(row)
  spend(row, known_spent(row) - spent_of(row))
  row.awaits = false
  versions = versions + 1
  row.version = versions
end

local function forget_cells(row)
  local size = cell_ms(row)
  local over = {}
  for cell in pairs(row.cells) do
    if (cell + 1) * size + row.window <= now + shift then over[#over + 1] = cell end
  end
  for _, cell in ipairs(over) do row.cells[cell] = nil end
end

local function key_of(at) return KEYS[FIXED - 1 + at] end

local function row_of(at)
  local spec, row = specs[at], rows[at]
  if not row and texts[at] then
    row = load_row(spec[1], texts[at])
    rows[at] = row
  end
  if not row then
    row = { name = spec[1], version = 0, due = 0, deaths = 0, computed = -NEVER, kind = spec[2],
      epoch = epoch, amount = spec[3], window = 0, longest = 0, out = 0, shown = 0, told = 0,
      first_held = 0, since = 0, awaits = closing == 'all' and spec[2] == 'counted', size = 0, cells = {} }
    rows[at] = row
    redis.call('DEL', key_of(at))
  elseif row.epoch ~= epoch then
    -- A new epoch is never open when it follows another, so another program wrote the number.
    if closing == 'open' then closing, begun = 'all', now end
    if row.kind == 'counted' then
      local flat = redis.call('HGETALL', key_of(at))
      for place = 1, #flat, 2 do
        local share = load_share(flat[place + 1])
        empty(share)
        share.decided, share.barred = false, 0
        redis.call('HSET', key_of(at), flat[place], text_of_share(share))
      end
    else
      redis.call('DEL', key_of(at))
      row.size = 0
    end
    row.epoch, row.out, row.amount = epoch, 0, spec[3]
    row.told, row.first_held, row.since = 0, 0, 0
    row.awaits, row.unsure = row.kind == 'counted', false
    row.due, row.computed, row.deaths = 0, -NEVER, deaths
  end
  row.window, row.longest = max(row.window, spec[4]), max(row.longest, spec[5])
  if row.kind == 'counted' then
    forget_cells(row)
  end
  changed_rows[at] = true
  return row
end

local own = {}
local function own_share(at)
  if own[at] == nil then
    local text = redis.call('HGET', key_of(at), incarnation)
    own[at] = text and load_share(text) or false
  end
  return own[at] or nil
end

local function usable_wants(barred)
  local useful = {}
  for at = 1, count do useful[at] = #lanes == 0 end
  for _, lane in ipairs(lanes) do
    local first, last = NEVER, -1
    for _, place in ipairs(lane) do
      local since = barred[place + 1]
      if since ~= 0 then
        first = min(first, place)
        if now - since >= GRACE_MS then last = max(last, place) end
      end
    end
    for _, place in ipairs(lane) do
      if first >= place and place >= last then useful[place + 1] = true end
    end
  end
  local wants = {}
  for at = 1, count do
    local want = uses[at * 5 - 3]
    wants[at] = want > 0 and useful[at] and max(want, uses[at * 5 - 2]) or 0
  end
  return wants
end

local function state(at, want)
  local spec, row, share = specs[at], row_of(at), own_share(at)
  local held, unit, spent, told = uses[at * 5 - 4], uses[at * 5 - 2], uses[at * 5 - 1], uses[at * 5]
  if not share then
    share = { held = 0, grant = 0, want = 0, unit = 1, amount = 0, target = 0, decided = false,
      barred = 0, spent = 0, run = run }
    share.rank = rank(host, spec[6] ~= '' and spec[6] or spec[1], incarnation)
    own[at] = share
    row.size = row.size + 1
  end
  if not share.decided or share.amount ~= spec[3] or share.unit ~= unit then
    row.amount = min(row.amount, spec[3])
    disturb(row)
  elseif share.want ~= want and not (share.target > 0 and share.target < min(share.want, want)) then
    disturb(row)
  end
  if row.kind == 'counted' then
    if share.amount == 0 then share.spent = min(spent, share.spent) end
    if row.awaits and told ~= 0 and not share.decided then share.spent = spent end
    local more = max(spent - share.spent, 0)
    spend(row, more)
    if share.decided then row.since = row.since + more end
    share.spent = max(spent, share.spent)
    if row.awaits and told ~= 0 and not share.decided then
      row.told = max(row.told, told, -1 - told)
      row.unsure = row.unsure or told < 0
      row.first_held = row.first_held + held
    end
  end
  row.out = row.out + held - out_of(share)
  share.held, share.grant = held, 0
  share.want, share.unit, share.amount, share.decided = want, unit, spec[3], true
end

local function grant_of(row, share)
  if row.awaits and now >= opens(row) then settle(row) end
  local free = row.amount - (row.out - out_of(share))
  if row.kind == 'counted' then free = free - spent_of(row) end
  if now < opens(row) then free = 0 end
  local grant = min(share.target, max(share.held, free))
  if row.kind ~= 'seats' and share.held < grant and grant < share.unit then grant = min(share.held, share.target) end
  row.out = row.out + max(share.held, grant) - out_of(share)
  share.grant = grant
  if row.kind ~= 'counted' then return grant, 0, 0, 0 end
  local known, spent = not row.awaits or (complete() and not row.unsure), known_spent(row)
  local told = known and spent + row.out or -1 - spent - row.out
  return grant, told, spent, now < opens(row) and 1 or 0
end

-- Division. An ask is a table with rank, want and unit.

local function fill(asks, amount, part)
  local found, room, taken, cut = {}, amount, 0, -1
  for at = 1, #asks do found[at] = 0 end
  for _, ask in ipairs(asks) do
    local need = min(ask.want, part)
    if need > room or amount <= 0 then break end
    room, taken, cut = room - need, taken + 1, ask.rank
  end
  local active, left = {}, amount
  for at = 1, taken do active[at] = at end
  while #active > 0 do
    local level = floor(left / #active)
    local larger, small = {}, false
    for _, at in ipairs(active) do
      if asks[at].want <= level then small = true else larger[#larger + 1] = at end
    end
    if not small then
      local more = left - level * #active
      for order, at in ipairs(active) do found[at] = level + (order <= more and 1 or 0) end
      left = 0
      break
    end
    for _, at in ipairs(active) do
      if asks[at].want <= level then
        found[at] = asks[at].want
        left = left - asks[at].want
      end
    end
    active = larger
  end
  for at = taken + 1, #asks do
    if left <= 0 then break end
    if left >= asks[at].unit then
      found[at] = min(asks[at].want, left)
      left = left - found[at]
    end
  end
  return found, cut, taken == #asks and room or 0
end

local function keep(old, new, wants)
  local small, gains, cuts = {}, 0, 0
  for at = 1, #new do
    local before, after = old[at], new[at]
    local change = after - before
    small[at] = before > 0 and change ~= 0 and math.abs(change) * 100 <= before * KEPT_PERCENT
    if small[at] and change > 0 then
      gains = gains + change
    elseif small[at] and before <= wants[at] then
      cuts = cuts - change
    end
  end
  local budget = min(gains, cuts)
  if budget == 0 then return new end
  local found = {}
  for at = 1, #new do found[at] = new[at] end
  for sign = 1, -1, -2 do
    local left = budget
    for at = 1, #new do
      local change = (new[at] - old[at]) * sign
      if small[at] and change > 0 and left > 0 and (sign > 0 or old[at] <= wants[at]) then
        local back = min(change, left)
        found[at] = found[at] - back * sign
        left = left - back
      end
    end
  end
  return found
end

local function by_rank(asks)
  table.sort(asks, function(one, other) return one.rank < other.rank end)
  return asks
end

local function of_runs(row, runs, amount)
  local parts, asks, part, runs_count = {}, {}, 1, 0
  for one, shares in pairs(runs) do
    runs_count = runs_count + 1
    parts[one] = amount
    local want, unit = 0, 1
    for _, share in ipairs(shares) do
      want = want + share.want
      if share.want > 0 then unit = max(unit, share.unit) end
    end
    part = max(part, unit)
    asks[#asks + 1] = { want = want, unit = unit, run = one }
  end
  if runs_count == 1 then return parts end
  local wanting = {}
  for _, ask in ipairs(asks) do
    parts[ask.run] = 0
    ask.rank = rank(ask.run, row.name, ask.run)
    if ask.want > 0 then wanting[#wanting + 1] = ask end
  end
  wanting = by_rank(wanting)
  part = min(part, amount)
  if #wanting > 1 and floor(amount / max(part, 1)) < 2 * #wanting then
    local turn_ms = row.kind == 'paced' and max(TURN_MS, 10 * row.window) or TURN_MS
    local turn = floor(now / turn_ms)
    row.due = min(row.due, (turn + 1) * turn_ms)
    local first, turned = turn % #wanting, {}
    for at = 1, #wanting do turned[at] = wanting[(at - 1 + first) % #wanting + 1] end
    wanting = turned
  end
  local found = fill(wanting, amount, part)
  for at, ask in ipairs(wanting) do parts[ask.run] = found[at] end
  return parts
end

local function within(row, shares, amount, most, spare)
  local wanting, unit = {}, 1
  for _, share in ipairs(shares) do
    if share.want > 0 then
      wanting[#wanting + 1] = share
      unit = max(unit, share.unit)
    end
  end
  wanting = by_rank(wanting)
  local whole = unit >= row.amount
  if whole then
    local has, others = {}, {}
    for _, share in ipairs(wanting) do
      local side = share.target > 0 and has or others
      side[#side + 1] = share
    end
    for _, share in ipairs(others) do has[#has + 1] = share end
    wanting = has
  end
  local useful = max(unit, row.kind == 'paced' and LEAST_PACED or 1)
  local asks, old, wants = {}, {}, {}
  for at, share in ipairs(wanting) do
    wants[at] = min(share.want, max(most, share.unit))
    asks[at] = { rank = share.rank, want = wants[at], unit = share.unit }
    old[at] = share.target
  end
  local parts, cut, room = fill(asks, amount, min(useful, amount))
  local full = #wanting > 0 and room + spare < max(min(useful, amount + spare), 1)
  parts = keep(old, parts, wants)
  local changed = false
  for at, share in ipairs(wanting) do share.next = parts[at] end
  for _, share in ipairs(shares) do
    local target, barred = share.next or 0, 0
    if full and target == 0 and (whole or share.rank > cut) then
      barred = share.barred ~= 0 and share.barred or now
    end
    if target ~= share.target or barred ~= share.barred then
      share.target, share.barred, share.touched, changed = target, barred, true, true
    end
  end
  return changed
end

local function divide(at)
  local row, key = rows[at], key_of(at)
  row.due, row.deaths = NEVER, deaths
  local ask = now - row.computed > FORGOTTEN_MS
  row.computed = now
  local all, mine = {}, own[at]
  local flat = redis.call('HGETALL', key)
  for place = 1, #flat, 2 do
    if flat[place] ~= incarnation then
      local share = load_share(flat[place + 1])
      share.who = flat[place]
      all[#all + 1] = share
    end
  end
  if mine then
    mine.who = incarnation
    all[#all + 1] = mine
  end
  -- Another program removed shares, so let the next call begin an epoch.
  if #all < row.size then kept = LOST end
  local amount, runs = 0, {}
  for _, share in ipairs(all) do
    local died, kept = nil, true
    if share.who ~= incarnation then
      died = died_at(share.who)
      if not died and ask and not redis.call('ZSCORE', key_seen, share.who) then died = 0 end
    end
    if died then
      local free_ms = died + lasts(row)
      if free_ms > now then
        row.due = min(row.due, free_ms)
        share.touched = share.touched or share.want ~= 0 or share.target ~= 0
        share.want, share.target = 0, 0
      elseif row.kind ~= 'counted' then
        row.out = row.out - out_of(share)
        row.size = row.size - 1
        redis.call('HDEL', key, share.who)
        kept = false
      else
        local lost = out_of(share)
        row.out = row.out - lost
        share.touched = share.touched or share.amount ~= 0
        empty(share)
        share.spent = share.spent + lost
        row.since = row.since + lost
        spend(row, lost)
      end
    end
    if kept then
      if share.amount > 0 then
        amount = min(amount > 0 and amount or share.amount, share.amount)
      end
      local shares = runs[share.run]
      if not shares then
        shares = {}
        runs[share.run] = shares
      end
      shares[#shares + 1] = share
    end
  end
  if amount > 0 then row.amount = amount end
  local left = row.amount
  local most = left
  if row.kind == 'counted' then
    left = max(left - spent_of(row), 0)
    local wanting, size = 0, cell_ms(row)
    for cell in pairs(row.cells) do row.due = min(row.due, (cell + 1) * size + row.window - shift) end
    for _, share in ipairs(all) do if share.want > 0 then wanting = wanting + 1 end end
    most = min(floor(left / (2 * max(wanting, 1))), floor(row.amount / 20))
  end
  local changed = row.amount ~= row.shown
  row.shown = row.amount
  local parts = of_runs(row, runs, left)
  local spare, runs_count = left, 0
  for one in pairs(runs) do
    spare, runs_count = spare - parts[one], runs_count + 1
  end
  if runs_count == 1 then spare = 0 end
  for one, shares in pairs(runs) do
    if within(row, shares, parts[one], most, spare) then changed = true end
  end
  for _, share in ipairs(all) do
    if share.touched and share ~= mine then
      redis.call('HSET', key, share.who, text_of_share(share))
    end
  end
  if changed then
    versions = versions + 1
    row.version = versions
  end
end

-- News

local function hear()
  for _, notice in ipairs(heard) do
    local name, reason, for_ms, of_run = notice[1], notice[2], notice[3], notice[4]
    local until_ms = for_ms > 0 and now + for_ms or -1
    local text = redis.call('HGET', key_news, name)
    local known = text and unpacked(text)
    local same = known and known[3] == reason and known[4] == of_run
    if same and until_ms == -1 then same = known[2] == -1 end
    if same and known[2] ~= -1 then same = until_ms <= known[2] + SKIP_MS end
    if not same then
      news_number = news_number + 1
      redis.call('HSET', key_news, name, pack({ news_number, until_ms, reason, of_run }))
    end
  end
end

local function news_since(seen)
  local found = {}
  if seen >= news_number then return found end
  local flat = redis.call('HGETALL', key_news)
  for at = 1, #flat, 2 do
    local told = unpacked(flat[at + 1])
    if told[2] ~= -1 and told[2] <= now then
      redis.call('HDEL', key_news, flat[at])
    elseif told[1] > seen and (told[4] == '' or told[4] == run) then
      local left = told[2] == -1 and 0 or told[2] - now
      found[#found + 1] = { told[1], { flat[at], told[3], left, told[4] } }
    end
  end
  table.sort(found, function(one, other) return one[1] < other[1] end)
  for at, one in ipairs(found) do found[at] = one[2] end
  return found
end

-- The call

local function answer(shares, stale)
  redis.call('HSET', key_ledger, 'epoch', epoch, 'born', born, 'begun', begun, 'closing', closing,
    'run_id', run_id, 'now', now, 'server', server, 'deaths', deaths, 'versions', versions,
    'peers', peers_told, 'reported', reported, 'news', news_number,
    'lag', lag, 'last_epoch', last_epoch, 'last_ms', last_ms, 'shift', shift,
    'kept', kept)
  for at = 1, FIXED - 1 do redis.call('PEXPIRE', KEYS[at], WEEK_MS) end
  local news = stale and {} or news_since(call_epoch == epoch and news_seen or 0)
  local head = { epoch, stale, now + shift, server, now - begun, redis.call('ZCARD', key_seen), news_number }
  return { pack(head), shares, pack(news) }
end

local function report()
  if call_epoch == epoch or call_epoch < last_epoch then return end
  local text = call_epoch == last_epoch and redis.call('HGET', key_ledger, 'reports')
  local reports = text and unpacked(text) or {}
  reports[#reports + 1] = answered_ms
  shift = shift + max(answered_ms - now - shift, 0)
  if call_epoch > last_epoch or answered_ms > last_ms then
    last_epoch, last_ms, peers_told = call_epoch, answered_ms, peers
  end
  reported = 0
  for _, at_ms in ipairs(reports) do
    if at_ms > last_ms - EXPIRE_MS then reported = reported + 1 end
  end
  redis.call('HSET', key_ledger, 'reports', pack(reports))
end

local function plan()
  local plain = unpacked(ARGV[2])
  specs, lanes = plain[1], plain[2]
  uses, count = unpacked(ARGV[3]), #specs
end

local function leave()
  plan()
  local names = {}
  for at = 1, count do names[at] = specs[at][1] end
  texts = count > 0 and redis.call('HMGET', key_rows, unpack(names)) or {}
  local shares = {}
  for at = 1, count do
    local row = texts[at] and load_row(names[at], texts[at])
    local ours = row and row.epoch == epoch
    if ours and open_days and row.awaits then
      settle(row)
      redis.call('HSET', key_rows, names[at], text_of_row(row))
    end
    local text = ours and redis.call('HGET', key_of(at), incarnation)
    if text then
      local share = load_share(text)
      row.out = row.out - out_of(share)
      redis.call('HDEL', key_of(at), incarnation)
      row.size = row.size - 1
      disturb(row)
      redis.call('HSET', key_rows, names[at], text_of_row(row))
    end
    for _, value in ipairs({ 0, specs[at][3], 0, 0, 0, 0 }) do shares[#shares + 1] = value end
  end
  redis.call('ZREM', key_seen, incarnation)
  redis.call('HDEL', key_dead, incarnation)
  redis.call('DEL', key_own)
  redis.call('HSET', key_own, 'seq', seq, 'epoch', 0)
  return pack(shares)
end

-- Whether the header of a row shows that nothing has changed.
local function at_rest(at, versions_seen)
  if not texts[at] then return false end
  local version, due, deaths_seen, computed = struct.unpack(HEADER, texts[at])
  return version == versions_seen[at] and due > now
    and (deaths_seen == deaths or computed + RECOMPUTE_MS > now)
end

local function all_rest(versions_seen)
  for at = 1, #versions_seen do
    if not at_rest(at, versions_seen) then return false end
  end
  return true
end

local function is_active(at, before, shares, versions_seen, barred)
  local held, base = uses[at * 5 - 4], at * 6 - 5
  if held ~= shares[base] or held ~= shares[base + 2] or shares[base + 5] ~= 0 then return true end
  if before then
    for place = at * 5 - 4, at * 5 do
      if before[place] ~= uses[place] then return true end
    end
  end
  if at_rest(at, versions_seen) then return false end
  if not texts[at] or specs[at][2] == 'counted' then return true end
  -- Often only shares of other hosts have changed. Then there is nothing to do or to write.
  local version, due, deaths_seen, computed, amount = struct.unpack(HEADER, texts[at])
  local share = own_share(at)
  if due <= now or (deaths_seen ~= deaths and computed + RECOMPUTE_MS <= now) or not share
    or share.target ~= shares[base + 2] or share.barred ~= barred[at] or amount ~= shares[base + 1]
  then
    return true
  end
  versions_seen[at] = version
  return false
end

local function renew(known)
  local alive = redis.call('ZSCORE', key_seen, incarnation)
  redis.call('ZADD', key_seen, now, incarnation)
  if not alive then redis.call('HDEL', key_dead, incarnation) end
  local same = alive and tonumber(known[2] or '0') == epoch and known[3] == ARGV[2]
  local aux = same and unpacked(known[6])
  if same and aux[2] == 1 and known[4] == ARGV[3] and now < aux[1] then
    texts = #aux[3] > 0 and redis.call('HMGET', key_rows, unpack(aux[6])) or {}
    if all_rest(aux[3]) then
      redis.call('HSET', key_own, 'seq', seq)
      return known[5]
    end
  end
  plan()
  local names = {}
  for at = 1, count do names[at] = specs[at][1] end
  texts = count > 0 and redis.call('HMGET', key_rows, unpack(names)) or {}
  local shares, versions_seen, wants_seen, barred, wake, before
  if same then
    shares, wake = unpacked(known[5]), aux[1]
    versions_seen, wants_seen, barred = aux[3], aux[4], aux[5]
    before = known[4] ~= ARGV[3] and unpacked(known[4])
  else
    shares, versions_seen, wants_seen, barred, wake = {}, {}, {}, {}, 0
    for at = 1, count do
      versions_seen[at], wants_seen[at], barred[at] = -1, -1, 0
      for place = at * 6 - 5, at * 6 do shares[place] = 0 end
      row_of(at)
    end
  end
  local active, any = {}, false
  for at = 1, count do
    active[at] = not same or is_active(at, before, shares, versions_seen, barred)
    any = any or active[at]
  end
  if any or now >= wake then
    for at = 1, count do
      if active[at] then
        row_of(at)
        local share = own_share(at)
        barred[at] = share and share.barred or 0
      end
    end
    local wants = usable_wants(barred)
    for at = 1, count do
      active[at] = active[at] or wants[at] ~= wants_seen[at]
      if active[at] then state(at, wants[at]) end
    end
    local room = AT_ONCE
    for at = 1, count do
      local row = active[at] and rows[at]
      if row and is_due(row) and (room == AT_ONCE or room >= row.size) then
        room = room - row.size
        divide(at)
      end
    end
    wake = NEVER
    for at = 1, count do
      if active[at] then
        local row, share = rows[at], own[at]
        local base = at * 6 - 5
        local grant, told, spent, closed = grant_of(row, share)
        shares[base], shares[base + 1] = grant, row.amount
        shares[base + 2], shares[base + 3] = share.target, told
        shares[base + 4], shares[base + 5] = spent, closed
        versions_seen[at] = row.version
        if barred[at] ~= share.barred then wake, barred[at] = 0, share.barred end
        redis.call('HSET', key_of(at), incarnation, text_of_share(share))
        redis.call('PEXPIRE', key_of(at), WEEK_MS)
      end
      if barred[at] ~= 0 and barred[at] + GRACE_MS > now then
        wake = min(wake, barred[at] + GRACE_MS)
      end
    end
    wants_seen = wants
  end
  local written = {}
  for at in pairs(changed_rows) do
    written[#written + 1] = names[at]
    written[#written + 1] = text_of_row(rows[at])
  end
  if #written > 0 then
    redis.call('HSET', key_rows, unpack(written))
    if kept < LOST then kept = redis.call('HLEN', key_rows) end
  end
  local calm = 1
  for at = 1, count do
    local grant = shares[at * 6 - 5]
    if grant ~= uses[at * 5 - 4] or grant ~= shares[at * 6 - 3] or shares[at * 6] ~= 0 then calm = 0 end
  end
  local packed = pack(shares)
  redis.call('HSET', key_own, 'seq', seq, 'epoch', epoch, 'plan', ARGV[2], 'uses', ARGV[3], 'shares',
    packed, 'host', host, 'run', run, 'aux', pack({ wake, calm, versions_seen, wants_seen, barred, names }))
  return packed
end

go_on(server_time())
live(server_run_id(call[5]))
bury()
local known = redis.call('HMGET', key_own, 'seq', 'epoch', 'plan', 'uses', 'shares', 'aux')
local known_seq, known_epoch = tonumber(known[1] or '-1'), tonumber(known[2] or '-1')
if seq <= known_seq then
  local good = seq == known_seq and known_epoch == epoch and redis.call('ZSCORE', key_seen, incarnation)
  return answer(good and known[5] or pack({}), not good)
end
if known_epoch ~= epoch and peers > 0 then report() end
hear()
local shares = renew(known)
if leaving then shares = leave() end
return answer(shares, false)
