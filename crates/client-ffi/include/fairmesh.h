/*
 * fairmesh.h - the look-up client of a Fairmesh node, for C.
 *
 * A batch scheduler asks the node of its cluster for factors: a number from 0 to
 * FAIRMESH_FACTOR_MAX for each user, account, group, queue and quality of service; the higher, the
 * sooner their jobs should run. Name all that the scheduler knows, as its usage is reported by all of
 * them: the node's identity rules may look at each.
 * Link libfairmesh_client_ffi.a and, behind it, -lpthread -ldl -lm.
 *
 * There are two ways to ask:
 *
 *   fairmesh_lookup()   asks once and waits. For a scheduler that runs a command now and then.
 *   fairmesh_table_*()  keep a table fresh in a thread of their own. For a scheduler that looks
 *                       factors up under its own locks: no look-up waits for the node.
 *
 * Ownership: a table belongs to the caller from fairmesh_table_open() to fairmesh_table_close().
 * Every string and array stays the caller's; nothing of it is kept, and nothing has to be freed.
 * Strings end with a zero byte. A user is UTF-8, 1 to 512 bytes long. The other words may be
 * anything that users write: they are asked for as records have them, with U+FFFD for what cannot be shown
 * and for what is behind 512 bytes.
 *
 * Threads: any thread may use a table, many at a time, but for fairmesh_table_close(), which no
 * other call may overlap or follow. Open a table after fork(), not before.
 *
 * Failures: no function ends the process, raises a signal, or throws; a bug inside is caught and
 * given as FAIRMESH_BUG. A null pointer is a bad argument.
 */
#ifndef FAIRMESH_H
#define FAIRMESH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FAIRMESH_FACTOR_MAX 1000000000u
/* In place of a factor: the node knows no such account, or has not answered. */
#define FAIRMESH_UNKNOWN 0xffffffffu
/* In place of an age: the node has never answered. */
#define FAIRMESH_NEVER_ANSWERED UINT64_MAX

/* Most points of fairmesh_scale's `importance`. */
#define FAIRMESH_IMPORTANCE_POINTS_MAX 1000000u

/* Most bytes of a name; longer ones are cut. */
#define FAIRMESH_NAME_MAX 512u

/* Most names in a table. */
#define FAIRMESH_TABLE_NAMES_MAX 65536u

#define FAIRMESH_OK 0
/* The name is noted; the node has not answered for it yet. */
#define FAIRMESH_NOT_YET 1
/* The node knows no such account. */
#define FAIRMESH_NOT_KNOWN 2
/* A null pointer, a timeout of zero, a user that is not UTF-8, empty or too long. */
#define FAIRMESH_BAD_ARGUMENT -1
/* The table holds FAIRMESH_TABLE_NAMES_MAX names. Those that nobody looks up are forgotten after a while. */
#define FAIRMESH_FULL -2
/* The node is away, was too slow, or refused. */
#define FAIRMESH_NO_ANSWER -3
/* A bug inside was caught; the call did nothing that can be relied on. */
#define FAIRMESH_BUG -4

struct fairmesh_name {
	const char *user;
	const char *account; /* NULL or "" for a job without an account */
	const char *group; /* that the job runs under; NULL or "" where it is not known */
	const char *queue; /* or partition; NULL or "" where it is not known */
	const char *qos; /* quality of service; NULL or "" where it is not known */
};

/*
 * Asks the node at `socket` for `count` factors, and waits up to `timeout_ms`, and twice that for
 * every 2,000 of them. Writes one factor (or FAIRMESH_UNKNOWN) for each name, or, if it fails, none.
 * `error` (which may be NULL) takes the reason, cut to `error_size` bytes with the final zero.
 * Gives FAIRMESH_OK, _BAD_ARGUMENT, _NO_ANSWER or _BUG.
 */
int fairmesh_lookup(const char *socket, const struct fairmesh_name *names, size_t count,
		    uint32_t timeout_ms, uint32_t *factors, char *error, size_t error_size);

/* A table that keeps itself fresh. */
typedef struct fairmesh_table fairmesh_table;

enum fairmesh_freshness {
	FAIRMESH_STATE_NEVER = 0, /* the node has never answered */
	FAIRMESH_STATE_FRESH = 1,
	FAIRMESH_STATE_OLD = 2, /* the last answer came longer than `old_ms` ago */
};

struct fairmesh_state {
	uint32_t state; /* enum fairmesh_freshness */
	uint32_t sites_known; /* member sites whose usage it knows, */
	uint32_t sites_total; /* of so many that ought to contribute */
	uint32_t names; /* names in the table */
	uint64_t answer_age_ms; /* since the node answered, or FAIRMESH_NEVER_ANSWERED */
	uint64_t view_age_ms; /* age of the oldest site's data when it answered */
	uint64_t view_flags; /* what the node warns of: docs/lookup.md */
	uint64_t revision; /* grows whenever a factor changes, or how far apart they are */
};

/*
 * Starts a table and its thread, which asks the node at `socket` every `interval_ms`, and sooner
 * when a new name is looked up. The node need not be there: the thread goes on trying, at least
 * every 10 seconds, and the factors stay as they are. An answer may take `timeout_ms`.
 * Gives NULL on a bad argument, or where the system gives no thread. Does not wait for the node.
 */
fairmesh_table *fairmesh_table_open(const char *socket, uint32_t interval_ms, uint32_t old_ms,
				    uint32_t timeout_ms);

/* Ends the table and its thread; waits for that up to three times `timeout_ms`. NULL is allowed. */
void fairmesh_table_close(fairmesh_table *table);

/* Notes a name, so that it has a factor when it is needed. Gives what fairmesh_table_factor() does. */
int fairmesh_table_add(const fairmesh_table *table, const struct fairmesh_name *name);

/*
 * Looks a name up, and notes it where it is new. Writes the node's last factor (or
 * FAIRMESH_UNKNOWN), and how many milliseconds ago the node last answered; both pointers may be
 * NULL. Takes well below a microsecond for a known name, does no IO, and gives FAIRMESH_OK,
 * _NOT_YET, _NOT_KNOWN, _BAD_ARGUMENT, _FULL or _BUG.
 */
int fairmesh_table_factor(const fairmesh_table *table, const struct fairmesh_name *name,
			  uint32_t *factor, uint64_t *age_ms);

/* How far apart two different factors of the last answer are at the least; 0 where none has said it. */
uint32_t fairmesh_table_step(const fairmesh_table *table);

/* How factors, and jobs' own importance, are to weigh in a scheduler's points. */
struct fairmesh_scale {
	uint32_t weight; /* points of the highest factor */
	/* Points between the least and the most important of one account's jobs, where there is
	 * room for them; 0 leaves importance aside, and nice to the scheduler. */
	uint32_t importance;
	int64_t min; /* points of account and importance are never below, */
	int64_t max; /* and never above */
};

/*
 * The points of a job, for a scheduler that subtracts the job's nice by itself: those of its
 * account's factor, in the room up to the next account those of its own importance, and its nice
 * again as far as that is its importance (-100 to 100). The importance is what the comment (which may
 * be NULL) says, `fairmesh:importance=150` from 0 to 200, or else 100 - nice. Of two accounts whose
 * factors differ by `step` at the least, no job of the lower one comes before a job of the other.
 * FAIRMESH_UNKNOWN as factor gives the points of the middle, weight / 2 within the bounds, whatever the
 * importance: such a job comes neither before nor after all others. Does no IO.
 */
int64_t fairmesh_points(const struct fairmesh_scale *scale, uint32_t factor, uint32_t step,
			const char *comment, int64_t nice);

/*
 * Waits until the table's revision is not `seen`, fairmesh_table_wake() is called, or
 * `timeout_ms` are over. Gives the revision. Start with 0.
 */
uint64_t fairmesh_table_wait(const fairmesh_table *table, uint64_t seen, uint32_t timeout_ms);

/* Ends a wait: the one under way, or the next. */
void fairmesh_table_wake(const fairmesh_table *table);

/* How fresh the table is. Gives FAIRMESH_OK, _BAD_ARGUMENT or _BUG. */
int fairmesh_table_state(const fairmesh_table *table, struct fairmesh_state *state);

/*
 * Why the node does not answer, in words, cut to `size` bytes with the final zero; empty while it
 * does. Gives the length that it would have had.
 */
size_t fairmesh_table_error(const fairmesh_table *table, char *buffer, size_t size);

#ifdef __cplusplus
}
#endif

#endif /* FAIRMESH_H */
