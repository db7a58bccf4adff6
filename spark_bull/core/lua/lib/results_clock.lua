-- @include lib: time_ms

-- The times that `discover` uses: the time of Redis, the look-back window, and the bounds of the scan, '' for none. ms.
local function results_clock(arg)
  return {
    now = time_ms(),
    lookback_ms = tonumber(arg.lookback_ms),
    slice_ms = tonumber(arg.slice_ms),
    until_completed = arg.until_completed,
    until_failed = arg.until_failed,
  }
end
