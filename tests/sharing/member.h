#include <netinet/in.h>

/* From REQUESTS on: descriptors of a member's own. */
enum { REQUESTS = 200, ROOM = 4096 };

/* What the thread's call has read or found. */
extern __thread char text[ROOM + 1];

/* Makes the call; `errno` is ENOSYS if there is none of that name. */
long called(const char *call, int fd, char **words);
/* A call that may wait for as long as it takes. */
long waits(const char *call, int fd, char **words);

struct sockaddr_in inet(const char *ip, int port);
/* Moves a new descriptor to the number that the family knows it by. */
int placed(int fd, int number);
/* Ends the text behind what has been read. */
long said(long count);
