/*
 * people_test.c - people.c with a name service and a clock of its own. Not a part of the plug-in.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "people.h"

#include <assert.h>
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <string.h>
#include <time.h>

static time_t now_s = 1;
static int failure, questions;
static char *user, *group;

int clock_gettime(clockid_t clock, struct timespec *now)
{
	(void)clock;
	*now = (struct timespec){ .tv_sec = now_s };
	return 0;
}

int getpwuid_r(uid_t uid, struct passwd *entry, char *buffer, size_t size, struct passwd **result)
{
	(void)uid, (void)buffer, (void)size;
	questions++;
	entry->pw_name = user;
	*result = user ? entry : NULL;
	return failure;
}

int getgrgid_r(gid_t gid, struct group *entry, char *buffer, size_t size, struct group **result)
{
	(void)gid, (void)buffer, (void)size;
	entry->gr_name = group;
	*result = group ? entry : NULL;
	return failure;
}

int main(void)
{
	/* The name service fails: it is asked again the next time. */
	failure = EIO;
	assert(!people_user(7) && !people_group(7) && people_waiting());
	people_resolve();
	assert(!people_user(7) && people_waiting());

	/* It is up, and does not know them yet: there is no name, and no hurry. */
	failure = 0;
	group = "physics";
	people_resolve();
	assert(!people_user(7) && !people_waiting());
	assert(!strcmp(people_group(7), "physics"));

	/* After long they are numbers, and who held one may go on. */
	for (int passes = 0; passes < NUMBER_AFTER_S + 60; passes++, now_s++) {
		assert(people_user(7) == NULL || passes >= NUMBER_AFTER_S);
		people_resolve();
	}
	const char *number = people_user(7);
	assert(number && !strcmp(number, "7") && people_numbered() == 1);
	assert(questions < 15);

	/* The directory comes up. */
	user = "ann";
	now_s += 60;
	people_resolve();
	assert(!strcmp(people_user(7), "ann") && !people_numbered());
	assert(!strcmp(number, "7"));

	/* What has a name is not asked for again. */
	user = "bob";
	now_s += 3600;
	people_resolve();
	assert(!strcmp(people_user(7), "ann") && !strcmp(people_group(7), "physics"));
	people_forget();
	return 0;
}
