-- @include lib: options_of whole_number

-- Returns a table of the durations of the locks of jobs, ms, by their options: that of the options, else `default`.
-- Options without one are not parsed, and equal ones are searched once.
local function lock_durations(default)
  return setmetatable({}, {
    __index = function(known, opts)
      local duration = default
      if string.find(opts, '"lockMs":', 1, true) then
        local given = whole_number(options_of(opts).lockMs)
        duration = given > 0 and string.format('%.0f', given) or default
      end
      known[opts] = duration
      return duration
    end,
  })
end
