-- @include lib: options_of

-- Returns a function of the options of a job that returns the duration of its lock, ms: that of its options, else
-- `default`. Options without one are not parsed, and equal ones, which follow each other, are searched once.
local function lock_durations(default)
  local last, duration = nil, default

  local function own(opts)
    if not opts or not string.find(opts, '"lockMs":', 1, true) then
      return default
    end
    local given = options_of(opts).lockMs
    return type(given) == 'number' and given >= 1 and string.format('%.0f', given) or default
  end

  return function(opts)
    if opts ~= last then
      last, duration = opts, own(opts)
    end
    return duration
  end
end
