/* engine_process.h: the engine side of the two processes. */
#ifndef RUNTIME_ENGINE_PROCESS_H
#define RUNTIME_ENGINE_PROCESS_H

#include "moe_error.h"

/* The verb `moert engine MODEL.img [options]` (internal: started by the front with the socket and the ring at
 * IPC_FD_SOCKET and IPC_FD_RING): opens the engine, then serves requests over the protocol of ipc.h until it is told to
 * stop, the front is gone or the device is lost. argv without program name and verb.
 * Errors: MOE_USAGE; whatever engine_open and scheduler_step give. When the front got the message, err holds the code
 * with an empty message, so that it is printed once. */
enum moe_code engine_process_run(int argc, char *const *argv, struct moe_error *err);

#endif
