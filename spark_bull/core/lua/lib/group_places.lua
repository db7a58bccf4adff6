-- Jobs of groups that wait, and have a place: promoted ones, and those that wait again while others of their group are
-- delayed. They are in the ZSET `group_promoted`: job id -> number of its group.
local function note_promoted(key, group, ids)
  for _, id in ipairs(ids) do
    redis.call('ZADD', key.group_promoted, group, id)
  end
end

-- Whether a job that waits again after it has left its group, {job id -> group}, comes behind the next jobs, and not at
-- the end: delayed jobs of its group would overtake it.
local function comes_near(key, left, id)
  return left[id] and redis.call('EXISTS', key.group_delayed) == 1
end

-- Reserves a place for jobs `ids` that wait again after they have left their groups, {job id -> group}.
local function keep_places(key, left, ids)
  if next(left) and redis.call('EXISTS', key.group_delayed) == 1 then
    for _, id in ipairs(ids) do
      if left[id] then
        note_promoted(key, left[id], {id})
      end
    end
  end
end

local group_places = {note_promoted = note_promoted, comes_near = comes_near, keep = keep_places}
