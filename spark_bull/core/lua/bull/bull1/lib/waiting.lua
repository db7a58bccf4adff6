-- As in bull/lib: Bull 1 has no priorities, and no groups in its limiter.
local function leave_wait() end
