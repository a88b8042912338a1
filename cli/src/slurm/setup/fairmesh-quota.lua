-- Fairmesh: is there credit for a job that is being submitted?
--
-- For job_submit.lua; it asks the node over its Unix socket, within slurmctld and without a program, by the module
-- `socket.unix` (Debian: lua-socket). What it can tell of a job at submission is the least that it will cost; what
-- it does cost is held when it starts, by PrologSlurmctld.
--
-- No call takes longer than DEADLINE. After one that got no answer nobody is asked for PAUSE, so a node that
-- hangs costs slurmctld one deadline in each.

local SOCKET = "{SOCKET}"
local CLUSTER = "{CLUSTER}"
local ON_SILENCE = "{ON_SILENCE}"
local DEADLINE = 1 -- seconds
local PAUSE = 10 -- seconds
local UNLIMITED_S = 366 * 86400
local WALL_S_MAX = 10 * 366 * 86400 -- the longest run that the node hears of
local BODY_MAX = 65536 -- bytes that it reads of a call
-- What it answers to a call that it refuses for what it says, and would again.
local REFUSED = { [400] = true, [413] = true, [422] = true }

local M = {}
local silent_until = 0
local groups = {}
-- When a group that had no name is asked for again.
local nameless_until = {}
-- What the components so far of a heterogeneous job need, by user and account, core-milliseconds.
local components = {}

-- A number that Slurm has set; it stands for "none" and "without a limit" by the largest ones.
local function number(value)
	if type(value) == "number" and value >= 0 and value < 4294967294 then
		return value
	end
end

local function quoted(text)
	return '"' .. text:gsub('[%c"\\]', function(c)
		return string.format("\\u%04x", c:byte())
	end) .. '"'
end

local function object(fields)
	local words = {}
	for name, value in pairs(fields) do
		if type(value) == "number" then
			words[#words + 1] = string.format('"%s":%.0f', name, value)
		else
			words[#words + 1] = string.format('"%s":%s', name, quoted(value))
		end
	end
	return "{" .. table.concat(words, ",") .. "}"
end

-- The name of a group, asked for until it has one: who knows the names may be away for a moment.
local function group_of(gid)
	if gid and groups[gid] == nil and os.time() >= (nameless_until[gid] or 0) then
		local pipe = io.popen(string.format("timeout 1 getent group %d", gid))
		local line = pipe and pipe:read("*l") or ""
		if pipe then
			pipe:close()
		end
		groups[gid] = line:match("^([^:]+):")
		nameless_until[gid] = os.time() + PAUSE
	end
	return gid and groups[gid]
end

-- Name and settings of the partition, the first of them if the job names several, the default one if none.
local function partition_of(job, partitions)
	local wanted = job.partition and job.partition:match("^[^,]+")
	for name, partition in pairs(partitions) do
		if name == wanted or (wanted == nil and partition.flag_default == 1) then
			return name, partition
		end
	end
	return wanted, nil
end

-- How long a job may run, in seconds: what it asks for, else what its partition says.
local function wall_s(job, partition)
	local minutes = number(job.time_limit)
	if minutes == nil and partition and job.time_limit ~= slurm.INFINITE then
		minutes = number(partition.default_time) or number(partition.max_time)
	end
	return minutes and math.min(math.max(minutes * 60, 1), WALL_S_MAX) or UNLIMITED_S
end

-- Tasks of an array such as `1-7:2,10%4`; 1 where it is none.
local function tasks_of(job)
	local count = 0
	for word in (job.array_inx or ""):gsub("%%%d+$", ""):gmatch("[^,%[%]]+") do
		local first, last, step = word:match("^(%d+)%-(%d+):?(%d*)$")
		if first then
			count = count + math.floor((last - first) / math.max(tonumber(step) or 1, 1))
		end
		count = count + 1
	end
	return math.max(count, 1)
end

-- GPUs in lists such as `gres:gpu:a100:2,gres:craynetwork:1`.
local function gpus_in(list)
	local sum = 0
	for word in (list or ""):gmatch("[^,]+") do
		local rest = word:match("gpu(.*)$")
		if rest then
			sum = sum + (tonumber(rest:match("[:=](%d+)$")) or 1)
		end
	end
	return sum
end

local function asked_for(job, partitions)
	local name, partition = partition_of(job, partitions)
	local nodes = math.max(number(job.min_nodes) or 1, 1)
	local tasks = math.max(number(job.num_tasks) or 1, 1)
	local cores = math.max(number(job.min_cpus) or 1, nodes)
	local mem = (number(job.min_mem_per_node) or 0) * nodes
	if mem == 0 then
		mem = (number(job.min_mem_per_cpu) or 0) * cores
	end
	local gpus = math.max(
		gpus_in(job.tres_per_job),
		gpus_in(job.tres_per_node) * nodes,
		gpus_in(job.tres_per_task) * tasks
	)
	return {
		cluster = CLUSTER,
		job = "submitted",
		user = job.user_name,
		account = job.account or job.default_account,
		group = group_of(number(job.group_id)),
		queue = name,
		qos = job.qos or job.default_qos,
		cores = cores,
		nodes = nodes,
		gpus = gpus,
		mem_mib = math.floor(mem),
		wall_s = wall_s(job, partition),
	}
end

-- Status and body of the node's answer; nothing and why where it gave none.
local function ask(body)
	if #body > BODY_MAX then
		return 413, '{"error":"the names of its account, partition and quality of service are too long"}'
	end
	local found, unix = pcall(require, "socket.unix")
	if not found then
		return nil, "no Lua module socket.unix: install lua-socket"
	end
	local stream = type(unix) == "table" and unix.stream or unix
	local connection, why = stream()
	if connection == nil then
		return nil, why
	end
	-- Of all that follows together.
	connection:settimeout(DEADLINE, "t")
	local ok
	ok, why = connection:connect(SOCKET)
	if ok then
		ok, why = connection:send(
			"POST /v1/quota/check HTTP/1.0\r\nHost: fairmesh\r\nContent-Length: " .. #body .. "\r\n\r\n" .. body
		)
	end
	local answer
	if ok then
		answer, why = connection:receive("*a")
	end
	connection:close()
	if answer == nil then
		return nil, why
	end
	local status, rest = answer:match("^HTTP/1%.%d (%d+).-\r\n\r\n(.*)$")
	if status == nil then
		return nil, "what came is not HTTP"
	end
	return tonumber(status), rest
end

-- The text of a field of a JSON object.
local function text(body, name)
	local at = select(2, body:find('"' .. name .. '":"', 1, true))
	if at == nil then
		return nil
	end
	local words = {}
	local escaped = false
	for c in body:sub(at + 1):gmatch(".") do
		if escaped or (c ~= "\\" and c ~= '"') then
			words[#words + 1] = c
			escaped = false
		elseif c == "\\" then
			escaped = true
		else
			break
		end
	end
	return table.concat(words)
end

local function silent(why)
	silent_until = os.time() + PAUSE
	slurm.log_error("fairmesh: whether quotas cover jobs is not known (%s): %s", tostring(why), ON_SILENCE)
end

-- Whether an answer lets a job be submitted: here, or by rights that others have.
local function lets(body)
	return text(body, "verdict") == "waiting" or body:find('"runs":true', 1, true) ~= nil
end

-- What a job needs of its account's credit, core-milliseconds; 0 where it is not held to any.
local function needs(body)
	return tonumber(text(body, "needs_core_ms")) or 0
end

-- What of the same credit the components before this one need; `of` is what they have in common.
local function ahead_of(job, of)
	if number(job.het_job_offset) == nil then
		return 0
	end
	if job.het_job_offset == 0 then
		components = {}
	end
	return components[of] or 0
end

-- An array is taken if one of its tasks has credit. Its user is told if not all have.
local function tell_of_tasks(request, need, tasks)
	request.ahead_core_ms = math.min(need * (tasks - 1), 2 ^ 53)
	local status, body = ask(object(request))
	if status == 200 and not lets(body) then
		slurm.log_user(
			"not all %d tasks of this array have credit now, and those beyond it will wait, held: %s",
			tasks,
			text(body, "message") or ""
		)
	end
end

-- slurm.SUCCESS where the job may be submitted. Otherwise its user is told why.
function M.check(job, partitions)
	local status, body, request, of, ahead
	if os.time() >= silent_until then
		request = asked_for(job, partitions)
		of = (request.user or "") .. "/" .. (request.account or "")
		ahead = ahead_of(job, of)
		request.ahead_core_ms = ahead
		status, body = ask(object(request))
		if status ~= 200 and not REFUSED[status] then
			silent(status and ("HTTP status " .. status) or body)
			status = nil
		end
	end
	if status == 200 and lets(body) then
		local need, tasks = needs(body), tasks_of(job)
		if number(job.het_job_offset) ~= nil then
			components[of] = ahead + need
		end
		if need > 0 and tasks > 1 then
			tell_of_tasks(request, need, tasks)
		end
		return slurm.SUCCESS
	elseif status == 200 then
		slurm.log_user("%s", text(body, "message") or text(body, "verdict") or "no credit")
	elseif REFUSED[status] then
		slurm.log_user("%s", text(body, "error") or "no credit")
	elseif ON_SILENCE == "refuse" then
		slurm.log_user("%s", "the site's Fairmesh node does not say whether this job has credit; try again later")
	else
		return slurm.SUCCESS
	end
	return slurm.ESLURM_ACCOUNTING_POLICY
end

return M
