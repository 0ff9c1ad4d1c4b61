#include <netinet/in.h>

/* From REQUESTS on: descriptors of a member's own. */
enum { REQUESTS = 200, ROOM = 4096, TOLD = 64 };

/* What the thread's call has read or found. */
extern __thread char text[ROOM + TOLD];

/* Makes the call; `errno` is ENOSYS if there is none of that name. */
long called(const char *call, int fd, char **words);
/* Calls that name an address, or tell one. */
long called_with_address(const char *call, int fd, char **words);
/* A call that may wait for as long as it takes. */
long waits(const char *call, int fd, char **words);

struct sockaddr_in inet(const char *ip, int port);
/* Moves a new descriptor to the number that the family knows it by. */
int placed(int fd, int number);
/* One datagram, with its sender. */
long receives_from(int fd, size_t len, int flags);
/* Ends the text behind what has been read. */
long said(long count);
