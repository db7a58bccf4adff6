-- Runs step(...), which writes to keys that a job shares with others. A key of a wrong type ends the step, but not the
-- script.
local function allow_wrongtype(step, ...)
  local done, why = pcall(step, ...)
  local message = type(why) == 'table' and why.err or why
  if not done and not string.find(message, 'WRONGTYPE', 1, true) then
    error(why, 0)
  end
end
