-- Acquires a ledger of results for a query if it is free or held by `previous_owner`, or creates it (`create`: '1' if
-- there is none, 'recreate' in any case). `starting`: 'earliest', 'latest', or a time (ms) since which jobs have
-- finished.
-- @args states...
-- @returns {'ok', position of the first entry, position after the last one}, {'lost'} when there is none and `create`
-- is '0', or {'taken', owner}
-- @include lib: events(last_event) values(time_ms)

local EARLIEST = {event = '0-0', floor = '-inf'}

local function start_of(starting, is_new)
  if starting == 'earliest' then
    return EARLIEST
  elseif starting == 'latest' then
    local slice_ms = tonumber(arg.slice_ms)
    local floor = math.floor((time_ms() - tonumber(arg.lookback_ms)) / slice_ms) * slice_ms
    return {event = is_new and last_event(key.events), floor = floor .. '', quiet = 1}
  end
  local event = tonumber(starting) > 0 and (tonumber(starting) - 1) .. '-18446744073709551615' or '0-0'
  return {event = event, floor = starting, since = starting}
end

-- Drops an unfinished walk of another query: it may have passed jobs that finished later, or end at an old horizon.
local function drop_walk(state)
  local walk = call('HGET', key.track, state .. ':walk')
  if walk == 'whole' or walk == 'finished' or walk == 'seen' then
    call('HDEL', key.track, state .. ':walk', state .. ':at', state .. ':below', state .. ':cursor', state .. ':sign')
  end
end

if arg.create == 'recreate' then
  call('DEL', key.track)
end
local owner = call('HGET', key.track, 'owner')
if owner and owner ~= arg.previous_owner and owner ~= arg.owner then
  return {'taken', owner}
end
local is_new = call('EXISTS', key.track) == 0
if is_new then
  if arg.create == '0' then
    return {'lost'}
  end
  call('UNLINK', key.ledger, key.delivered_early, key.seen_completed, key.seen_failed, key.slices_completed,
    key.slices_failed)
end
local start = start_of(arg.starting, is_new)
if is_new then
  local counter = call('GET', key.id) or 0
  call('HSET', key.track, 'base', arg.first, 'protocol', arg.protocol, 'id', counter, 'event', start.event,
    'deleted', call('GET', key.deleted) or '')
  if start.since then
    call('HSET', key.track, 'since', start.since)
  end
end
local resliced = call('HGET', key.track, 'slice_ms') ~= arg.slice_ms
call('HSET', key.track, 'owner', arg.owner, 'slice_ms', arg.slice_ms, 'late', 0)
for _, state in ipairs(arg.states) do
  if call('HSETNX', key.track, state .. ':floor', start.floor) == 1 and start.quiet then
    call('HSET', key.track, state .. ':quiet', 1)
  end
  if owner ~= arg.owner then
    drop_walk(state)
  end
  if resliced then
    call('DEL', key['slices_' .. state])
    if tonumber(call('HGET', key.track, state .. ':walk') or '') then
      call('HDEL', key.track, state .. ':walk', state .. ':at', state .. ':below', state .. ':count')
    end
  end
end
call('PEXPIRE', key.track, arg.ttl_ms)
local base = tonumber(call('HGET', key.track, 'base'))
return {'ok', base, base + call('LLEN', key.ledger)}
