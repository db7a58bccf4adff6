-- Counts finished jobs: `count` in the HASH is the total, the LIST has a number for each of the last `most` minutes,
-- the newest first.
local function count_metrics(meta, data, finished, most, now)
  local call = redis.call
  local before = call('HINCRBY', meta, 'count', finished) - finished
  local previous = call('HMGET', meta, 'prevTS', 'prevCount')
  if not previous[1] then
    call('HSET', meta, 'prevTS', now, 'prevCount', 0)
    return
  end
  local minutes = math.min(math.floor(now / 60000) - math.floor(previous[1] / 60000), most)
  if minutes <= 0 then
    return
  end
  local points = {before - previous[2]}
  for i = 2, minutes do
    points[i] = 0
  end
  for from = 1, #points, 5000 do
    call('LPUSH', data, unpack(points, from, math.min(from + 4999, #points)))
  end
  call('LTRIM', data, 0, most - 1)
  call('HSET', meta, 'prevCount', before, 'prevTS', now)
end

-- Counts the jobs that one call has finished, unless the worker keeps no metrics. Keys of another type count nothing: the
-- jobs are settled.
local function count_finished(key, arg, completed, failed, now)
  local most = tonumber(arg.max_metrics)
  if most > 0 and completed > 0 then
    pcall(count_metrics, key.metrics_completed, key.metrics_completed_data, completed, most, now)
  end
  if most > 0 and failed > 0 then
    pcall(count_metrics, key.metrics_failed, key.metrics_failed_data, failed, most, now)
  end
end
