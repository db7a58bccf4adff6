-- Runs step(...), which writes to keys that others share with a job. Those of another type than they should be end it, and
-- nothing else.
local function allow_wrongtype(step, ...)
  local done, why = pcall(step, ...)
  local message = type(why) == 'table' and why.err or why
  if not done and not string.find(message, 'WRONGTYPE', 1, true) then
    error(why, 0)
  end
end
