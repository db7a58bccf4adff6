-- @include lib: listed

local FIELDS = {'id', 'action', 'data', 'delay', 'priority', 'lifo', 'reset_attempts', 'to', 'to_base', 'reason', 'value',
  'from'}

-- Returns a function of the row that returns the change of one job: {key of the job, id, action, …}.
local function changes_of(base, chunk)
  local columns = {}
  for _, name in ipairs(FIELDS) do
    columns[name] = chunk[name] ~= nil and listed(chunk, name) or nil
  end
  return function(i)
    local change = {}
    for name, column in pairs(columns) do
      change[name] = column[i]
    end
    change.key = base .. change.id
    return change
  end
end

-- Takes the steps of an action from the share of the script. The first job of a script may take more than there are.
local function takes_steps(share, steps)
  if not share.is_first and steps > share.steps then
    return false
  end
  share.steps = share.steps - steps
  return true
end

local managed_jobs = {changes_of = changes_of, takes_steps = takes_steps}
