"""Compares what an image answers with the goldens: greedy tokens and log-probabilities of llama.cpp on the CPU in float32.

A golden is {"model", "source", "samples": [{"prompt_ids", "ids", "top": [[[id, logprob], ...16], ...]}]}. The bars:
- the same tokens, as long as the golden's best two are more than NEAR_TIE apart; at the first difference the comparison ends;
- over the positions up to there, |difference| of the log-probabilities of the golden's best 4: mean below MEAN, largest below LARGEST. A position
  where the oracle's router margin is below MARGIN may exceed the largest; it is listed."""
import json, os, subprocess, sys, tempfile

NEAR_TIE, MEAN, LARGEST, MARGIN = 0.05, 0.01, 0.15, 1e-3
N_PREDICT, N_LOGPROB = 40, 16
MOEC, MOERT = os.environ.get('MOEC', 'moec'), os.environ.get('MOERT', 'moert')


def compile_image(model, folder, *options):
    image = os.path.join(folder, os.path.basename(model)[:-5] + '.img')
    subprocess.run([MOEC, model, '-o', image, '-q', *options], check=True)
    return image


def run(image, prompt_ids, *options):
    """One greedy run; the parsed JSON object of `moert run --json`."""
    with tempfile.NamedTemporaryFile('w', suffix='.json') as ids:
        json.dump(prompt_ids, ids)
        ids.flush()
        command = [MOERT, 'run', image, '--ids', ids.name, '--temp', '0', '-n', str(N_PREDICT), '--logprobs', str(N_LOGPROB), '--json', *options]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def margins(model, prompt_ids, n):
    """Router margins by position of the whole sequence, from the compiler's double-precision oracle."""
    with tempfile.NamedTemporaryFile('w', suffix='.json') as ids:
        json.dump(prompt_ids, ids)
        ids.flush()
        command = [MOEC, 'oracle', model, '--ids', ids.name, '-n', str(n), '--json']
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)['router_margin']


def differences(sample, found):
    """(position, |difference|) of the golden's best 4 up to the first different token, and an error text or None."""
    rows, error = [], None
    for i, golden in enumerate(sample['ids'][:N_PREDICT]):
        if i >= len(found['ids']):
            error = 'ended after %d tokens, the golden has %d' % (len(found['ids']), len(sample['ids']))
            break
        top, ours = sample['top'][i], dict(map(tuple, found['logprobs'][i]))
        for token, logprob in top[:4]:
            rows.append((i, abs(ours[token] - logprob) if token in ours else float('inf')))
        if found['ids'][i] != golden:
            gap = top[0][1] - top[1][1]
            if gap > NEAR_TIE:
                error = 'token %d is %d, the golden has %d, whose best two are %.3f apart' % (i, found['ids'][i], golden, gap)
            break
    return rows, error


def compare(name, model, sample, found):
    """Prints one line; True when within the bars."""
    rows, error = differences(sample, found)
    mean = sum(d for _, d in rows) / max(1, len(rows))
    largest = max((d for _, d in rows), default=0.0)
    exempt = []
    if not error and largest >= LARGEST:
        margin = margins(model, sample['prompt_ids'], len(sample['ids']))
        n_prompt = len(sample['prompt_ids'])
        for i, d in rows:
            if d >= LARGEST and margin and margin[n_prompt - 1 + i] < MARGIN:
                exempt.append(i)
        largest = max((d for i, d in rows if i not in exempt), default=0.0)
    if not error and not rows:
        error = 'nothing was compared'
    if not error and mean >= MEAN:
        error = 'mean difference %.4f, allowed below %g' % (mean, MEAN)
    if not error and largest >= LARGEST:
        error = 'largest difference %.4f, allowed below %g' % (largest, LARGEST)
    note = ', router near-ties at %s' % sorted(set(exempt)) if exempt else ''
    print('%-34s prompt %4d, %2d tokens: mean %.5f largest %.5f%s%s' % (name, len(sample['prompt_ids']), len(rows) // 4, mean, largest, note,
                                                                        '  FAILED: ' + error if error else ''), flush=True)
    return not error


def check(image, model, golden, *options, samples=None):
    """Runs every sample of `golden` (or those of the list `samples`) on `image`, compiled from `model`; the number of failures."""
    with open(golden) as f:
        data = json.load(f)
    name = ' '.join([os.path.basename(golden)[:-5], *options])
    return sum(not compare(name, model, sample, run(image, sample['prompt_ids'], *options)) for i, sample in enumerate(data['samples'])
               if samples is None or i in samples)


def control(golden):
    """The bars can fail: a golden compared with itself passes, with shifted log-probabilities or another token it does not."""
    with open(golden) as f:
        sample = json.load(f)['samples'][0]
    same = {'ids': list(sample['ids']), 'logprobs': sample['top']}
    shifted = {'ids': same['ids'], 'logprobs': [[[t, p + 0.02] for t, p in row] for row in sample['top']]}
    other = {'ids': [same['ids'][0] + 1] + same['ids'][1:], 'logprobs': sample['top']}
    short = {'ids': same['ids'][:-1], 'logprobs': sample['top'][:-1]}
    verdicts = [compare('control', None, sample, x) for x in (same, shifted, other, short)]
    return verdicts != [True, False, False, False]


def finish(failures):
    print('%s: %d failures' % (os.path.basename(sys.argv[0]), failures))
    sys.exit(1 if failures else 0)
