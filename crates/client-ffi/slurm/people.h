/*
 * people.h - the names of users and groups, by uid and gid.
 *
 * Slurm's job records hold numbers; a name service may take seconds to name one. So a number is
 * noted under Slurm's locks, and named outside of them.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#ifndef FAIRMESH_SLURM_PEOPLE_H
#define FAIRMESH_SLURM_PEOPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* A machine's directory may take so long to come up, in seconds. */
#define NUMBER_AFTER_S 120

/* The name, good until people_forget(); NULL (and noted) where it is not known. Does no IO. */
const char *people_user(uid_t uid);
const char *people_group(gid_t gid);

/* Whether the name service has not answered for somebody who is noted. */
bool people_waiting(void);

/* How many are called by their numbers. */
size_t people_numbered(void);

/*
 * Names those who were noted; asks the name service. Where it failed, it is asked again the next
 * time. Where it knows no name, which it also says while its directory is not up yet, it is asked
 * again for good, at the least once a minute; for the first NUMBER_AFTER_S there is no name, and then
 * it is the number, as Slurm has it.
 */
void people_resolve(void);

/* Frees everything. Nobody may hold a name any more. */
void people_forget(void);

#endif
