"""A second reader of device images, written from images/FORMAT.md alone: reads an image and checks hashes, ranges and hazards.

usage: test_second_reader.py [IMAGE]; without IMAGE, compiles the embedded model with $MOEC first."""
import hashlib, json, os, struct, subprocess, sys, tempfile


def blake(personal, data):
    return hashlib.blake2b(data, digest_size=32, person=personal.encode()).digest()


def section_hash(data):
    leaves = [blake('moe-leaf', data[i:i + (1 << 20)]) for i in range(0, len(data), 1 << 20)]
    return blake('moe-section', b''.join(leaves))


def read_sections(data):
    magic, major, _, header_bytes, file_bytes, n_section, reserved = struct.unpack_from('<8sHHIQII', data)
    assert magic == b'MOEIMAGE' and major == 1 and reserved == 0
    assert file_bytes == len(data) and header_bytes == 64 + 64 * n_section and n_section <= 32
    header = data[:32] + bytes(32) + data[64:header_bytes]
    assert blake('moe-root', header) == data[32:64], 'root hash'
    sections, end = {}, header_bytes
    for i in range(n_section):
        kind, flags, offset, size, reserved = struct.unpack_from('<IIQQQ', data, 64 + 64 * i)
        assert flags == 0 and reserved == 0 and offset % 65536 == 0 and offset >= end and offset + size <= len(data)
        assert not any(data[end:offset]), 'gap'
        assert kind not in sections
        sections[kind] = data[offset:offset + size]
        assert section_hash(sections[kind]) == data[64 + 64 * i + 32:64 + 64 * i + 64], 'hash of section %d' % kind
        end = offset + size
    assert end == len(data)
    return sections


def name(data, offset):
    return data[offset:data.index(b'\0', offset)].decode()


def read_modules(data):
    n, _, at, names, _ = struct.unpack_from('<IIQQQ', data)
    modules = []
    for i in range(n):
        code, zbytes, nbytes, name_at, tier, push, n_tuning = struct.unpack_from('<QIIIIII', data, at + 144 * i)
        assert data[code:code + 4] == b'\x28\xb5\x2f\xfd', 'a zstd frame'
        assert code + zbytes <= len(data) and nbytes % 4 == 0 and 1 <= n_tuning <= 4 and tier < 5
        modules.append(dict(name=name(data, names + name_at), push=push))
    return modules


def read_templates(data):
    counts = struct.unpack_from('<6IQ', data)
    offsets = struct.unpack_from('<7Q', data, 32)
    names, _ = struct.unpack_from('<QQ', data, 88)
    shapes = ['<8I', '<HH15I', '<II', '<BBHIQ', '<BBHIQQ', '<IIQ', '<Q']
    order = ['template', 'inst', 'body', 'word', 'region', 'table', 'value']
    arrays = {}
    for key, count, offset, shape in zip(order, counts, offsets, shapes):
        size = struct.calcsize(shape)
        arrays[key] = [struct.unpack_from(shape, data, offset + size * i) for i in range(count)]
    arrays['names'] = [name(data, names + t[0]) for t in arrays['template']]
    return arrays


def unroll(t, first, n, table=None, row=0):
    """Yields (instruction, cells of the current table row)."""
    for inst in t['inst'][first:first + n]:
        op = inst[0]
        if op == 3:
            body, table_index, first_row, count = inst[10:14]
            n_row, n_column, first_value = t['table'][table_index]
            assert first_row + count <= n_row
            for r in range(first_row, first_row + count):
                cells = [v[0] for v in t['value'][first_value + r * n_column:first_value + (r + 1) * n_column]]
                yield from unroll(t, *t['body'][body], cells)
        else:
            yield inst, table


def check_template(t, template, modules, sizes):
    pending, dispatches = [], 0
    for inst, cells in unroll(t, template[5], template[6]):
        op, _, module, gx, gy, gz, first_word, n_word, first_region, n_region = inst[:10]
        if op == 2:
            pending = []
            continue
        assert op == 1 and gx and gy and gz
        push = 0
        for kind, arena, column, _, value in t['word'][first_word:first_word + n_word]:
            if kind in (2, 3):
                assert push % 8 == 0
                assert value + (cells[column] if kind == 3 else 0) <= sizes[arena]
            if kind == 5:  # a table in device memory
                assert push % 8 == 0 and cells is None
                n_row, n_column, first_value = t['table'][value]
                for cell, in t['value'][first_value:first_value + n_row * n_column]:
                    to, offset = cell >> 56, cell & (1 << 56) - 1
                    assert to == 255 or (to in (0, 1, 2, 3, 6, 7) and offset < sizes[to])
            push += 8 if kind in (2, 3, 5) else 4
        assert push == modules[module]['push'], modules[module]['name']
        mine = []
        for access, arena, column, _, offset, size in t['region'][first_region:first_region + n_region]:
            assert access in (1, 2, 3) and not (access & 2 and arena in (0, 1, 4))
            begin = offset + (0 if column == 0xffff else cells[column])
            whole = size == 2**64 - 1
            assert whole or begin + size <= sizes[arena]
            mine.append((access, arena, 0 if whole else begin, 2**64 if whole else begin + size))
        for a in pending:
            for b in mine:
                assert not (a[1] == b[1] and (a[0] | b[0]) & 2 and a[2] < b[3] and b[2] < a[3]), 'hazard'
        pending += mine
        dispatches += 1
    return dispatches


def main(path):
    with open(path, 'rb') as f:
        data = f.read()
    sections = read_sections(data)
    manifest = json.loads(sections[1])
    modules = read_modules(sections[2])
    templates = read_templates(sections[3])
    huge = 2**63
    sizes = [len(sections[5]), len(sections[6]), huge, manifest['memory']['act_bytes'], huge, huge, huge, manifest['state']['block_bytes']]
    total = 0
    for template in templates['template']:
        total += check_template(templates, template, modules, sizes)
    assert total > 0
    json.loads(sections[9])
    print('%d sections, %d modules, %d templates, %d dispatches: fine' % (len(sections), len(modules), len(templates['template']), total))


if len(sys.argv) > 1:
    main(sys.argv[1])
else:
    with tempfile.TemporaryDirectory() as folder:
        image = os.path.join(folder, 'm.img')
        model = os.path.join(os.environ['TESTS_DIR'], 'models', 'wordnet-moe.gguf')
        subprocess.run([os.environ['MOEC'], model, '-o', image, '-q'], check=True)
        main(image)
