/* scripted_engine.h: the vocabulary of the scripted model. */
#ifndef TESTS_SCRIPTED_ENGINE_H
#define TESTS_SCRIPTED_ENGINE_H

enum { SCRIPTED_END = 256, SCRIPTED_VOCAB = 257 };

#endif
