/* The page that these servers answer with, and their port. */
#define PORT 80
static const char page[] =
    "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nContent-Type: text/plain\r\n\r\nserved";
