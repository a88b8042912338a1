-- What Slurm asks of every job that is submitted. Where there is a job_submit.lua already, take the two lines
-- with `quota` over into it.

local quota = dofile("{QUOTA_LUA}")

function slurm_job_submit(job, partitions, submit_uid)
	return quota.check(job, partitions)
end

function slurm_job_modify(job, record, partitions, modify_uid)
	return slurm.SUCCESS
end
