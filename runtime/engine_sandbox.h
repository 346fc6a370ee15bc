/* engine_sandbox.h: what the engine process gives up once it has loaded. */
#ifndef RUNTIME_ENGINE_SANDBOX_H
#define RUNTIME_ENGINE_SANDBOX_H

#include "moe_error.h"

/* From here on no thread of this process can make or connect a socket, start a program or trace another process: the
 * calls fail with EPERM. Needs PR_SET_NO_NEW_PRIVS. What is open stays usable. Errors: MOE_DECLINED when this kernel
 * has no seccomp filters; the process is then as it was. */
enum moe_code engine_sandbox_enter(struct moe_error *err);

#endif
