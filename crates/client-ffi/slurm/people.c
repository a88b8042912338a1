/*
 * people.c - the names of users, by uid. See people.h.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 */
#include "people.h"

#include <pthread.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Longest entry of the name service that is read; one with a longer list of fields has no name. */
#define ENTRY_BYTES 65536

struct person {
	uid_t uid;
	char *name; /* NULL until it is known; never changed after */
};

/* Sorted by uid. */
static struct person *people;
static size_t people_count, people_room, people_nameless;
static pthread_mutex_t people_lock = PTHREAD_MUTEX_INITIALIZER;

/* Where the uid is, or belongs. */
static size_t place_of(uid_t uid)
{
	size_t low = 0, high = people_count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (people[middle].uid < uid)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void note(size_t place, uid_t uid)
{
	if (people_count == people_room) {
		size_t room = people_room ? 2 * people_room : 256;
		struct person *larger = realloc(people, room * sizeof(*people));
		if (!larger)
			return; /* noted another time */
		people = larger;
		people_room = room;
	}
	memmove(&people[place + 1], &people[place], (people_count - place) * sizeof(*people));
	people[place] = (struct person){ .uid = uid };
	people_count++;
	people_nameless++;
}

const char *people_name(uid_t uid)
{
	const char *name = NULL;
	pthread_mutex_lock(&people_lock);
	size_t place = place_of(uid);
	if (place < people_count && people[place].uid == uid)
		name = people[place].name;
	else
		note(place, uid);
	pthread_mutex_unlock(&people_lock);
	return name;
}

bool people_waiting(void)
{
	pthread_mutex_lock(&people_lock);
	bool waiting = people_nameless > 0;
	pthread_mutex_unlock(&people_lock);
	return waiting;
}

/* The next who has no name, from this uid on. */
static bool next_nameless(uid_t from, uid_t *uid)
{
	bool found = false;
	pthread_mutex_lock(&people_lock);
	for (size_t place = place_of(from); !found && place < people_count; place++)
		if (!people[place].name) {
			*uid = people[place].uid;
			found = true;
		}
	pthread_mutex_unlock(&people_lock);
	return found;
}

static void name_one(uid_t uid, char *buffer)
{
	struct passwd entry, *result = NULL;
	char number[16];
	int failed = getpwuid_r(uid, &entry, buffer, ENTRY_BYTES, &result);
	if (failed && !result)
		return;
	snprintf(number, sizeof(number), "%u", (unsigned)uid);
	char *name = strdup(result ? result->pw_name : number);
	if (!name)
		return;
	pthread_mutex_lock(&people_lock);
	people[place_of(uid)].name = name;
	people_nameless--;
	pthread_mutex_unlock(&people_lock);
}

void people_resolve(void)
{
	uid_t uid;
	uid_t from = 0;
	char *buffer = people_waiting() ? malloc(ENTRY_BYTES) : NULL;
	while (buffer && next_nameless(from, &uid)) {
		name_one(uid, buffer);
		if (uid == (uid_t)-1)
			break;
		from = uid + 1;
	}
	free(buffer);
}

void people_forget(void)
{
	pthread_mutex_lock(&people_lock);
	for (size_t place = 0; place < people_count; place++)
		free(people[place].name);
	free(people);
	people = NULL;
	people_count = people_room = people_nameless = 0;
	pthread_mutex_unlock(&people_lock);
}
