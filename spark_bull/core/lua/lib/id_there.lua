-- The id that a job keeps in another queue: numbers belong to its queue.
local function id_there(change)
  return not string.match(change.id, '^%d+$') and change.id or nil
end
