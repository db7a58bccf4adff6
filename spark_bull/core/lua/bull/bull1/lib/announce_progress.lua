-- @include bull/bull1/lib: announce

local function announce_progress(_, arg)
  announce(arg, 'progress', arg.job_id, arg.progress)
end
