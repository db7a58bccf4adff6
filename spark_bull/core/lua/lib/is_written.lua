-- The events of a job that goes on: who waits for its end needs none of them.
local STEPS = {added = true, waiting = true, active = true, ['waiting-children'] = true}

-- Whether an event of a job is written or published, by what the sender has chosen: `all`, `ends` (all but STEPS) or
-- `none`. `delayed` always is, as promoters wake by it.
local function is_written(arg, event)
  return arg.events == 'all' or event == 'delayed' or (arg.events == 'ends' and not STEPS[event])
end
