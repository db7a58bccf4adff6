-- @include lib/time_ms

-- What discovering goes by: Redis' clock, the window, and up to where to look, '' for all. ms.
local function results_clock(arg)
  return {
    now = time_ms(),
    lookback_ms = tonumber(arg.lookback_ms),
    slice_ms = tonumber(arg.slice_ms),
    until_completed = arg.until_completed,
    until_failed = arg.until_failed,
  }
end

-- The answer: {'ok', position behind the last entry, `more`, and of a dialect with events the last one read, and how many
-- jobs are missing}
local function found_results(key, arg, more, cursor, missing)
  local call = redis.call
  for _, name in ipairs({'ledger', 'track', 'seen_completed', 'seen_failed', 'told', 'slices_completed', 'slices_failed'}) do
    if key[name] then
      call('PEXPIRE', key[name], arg.ttl_ms)
    end
  end
  local base = tonumber(call('HGET', key.track, 'base'))
  return {'ok', base + call('LLEN', key.ledger), more, cursor, missing}
end
