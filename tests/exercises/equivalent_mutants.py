"""Changes of a solution that are right as well: exercise -> why -> the mutants' names."""

_ORDER = "which of two numbers is larger doesn't depend on their order"
_NAN = "a maximum swallows the NaN of its masked lanes, on a GPU too"
_NOTHING = "it is multiplied by the exponential of minus infinity, or stands where nothing finite was seen"
_AXIS = "a matrix has two axes: its last one is axis 1"
_EXACT = "float16 holds these whole numbers exactly"
_BIT = "a wait looks at the lowest bit of the phase alone"
_SIZES = "other sizes, and more room behind, show the same mistakes"

_LISTED = {
    "selection/keys_of_parts": {
        _ORDER: [
            "numbers_of_parts: return [max(0, min(share, K - part * share)) for part in range(parts)] @12: "
            "0, min(share, K - part * share) -> min(share, K - part * share), 0",
            "numbers_of_parts: return [max(0, min(share, K - part * share)) for part in range(parts)] @19: "
            "share, K - part * share -> K - part * share, share",
        ],
    },
    "selection/target_of_a_list": {
        "of an empty list no exponential is taken": ["target: largest = max(listed, default=0.0) @30: 0.0 -> 1.0"],
    },
    "selection/heads_past_the_last": {
        "what is none is chosen away, and what is past the end isn't stored": [
            'averaged_kernel: j = tl.load(indices_ptr + k, mask=k < K, other=-1) @47: -1 -> float("nan")',
            "averaged_kernel: lse = tl.load(lse_ptr + h, mask=h < H, other=0.0) @45: 0.0 -> None",
        ],
    },
    "operations/token_of_a_piece": {
        "more memory for the sums than is used": [
            'logprobs: largest, sums = torch.full((rows,), -float("inf"), device=x.device), torch.zeros(rows, 2, '
            "device=x.device) @87: 2 -> 3"
        ],
    },
    "selection/texts_on_a_card": {
        _ORDER: ["texts: return max(pages, 0) // -(-tokens // page) @11: pages, 0 -> 0, pages"],
    },
    "model/capped_ratio": {
        _ORDER: [
            "weights: return [math.exp(min(now - then, math.log(most))) for now, then in zip(trainer, sampler)] @21: "
            "now - then, math.log(most) -> math.log(most), now - then"
        ],
    },
    "cache/padding_in_the_minimum": {
        "masked lanes become infinite before they are compared": [
            "steps_kernel: x = tl.load(x_ptr + row * N + n, mask=n < N, other=0.0) @51: 0.0 -> None",
            'steps_kernel: x = tl.load(x_ptr + row * N + n, mask=n < N, other=0.0) @51: 0.0 -> float("nan")',
        ],
    },
    "selection/leading_none": {
        "one more is the same float": [
            "log_sums_kernel: row_max = tl.full((), -3.4028234663852886e38, tl.float32) @23: "
            "3.4028234663852886e38 -> 3.4028234663852886e+38"
        ],
    },
    "sampling/tie_at_k": {
        "a comparison with NaN is false: what is masked comes before nothing": [
            'kept_kernel: x = tl.load(x_ptr + i, mask=i < n, other=-float("inf")) @41: -float("inf") -> float("nan")'
        ],
    },
    "sampling/first_to_arrive": {
        "a masked lane's time is NaN, which a minimum drops": [
            'draw_kernel: v = tl.load(v_ptr + token, mask=mask, other=0.5) @44: 0.5 -> float("nan")'
        ],
    },
    "recurrences/squares": {
        _ORDER: [
            "inverse: inverse_kernel[(1,)](a, out, n, BLOCK=max(16, triton.next_power_of_2(n))) @42: "
            "16, triton.next_power_of_2(n) -> triton.next_power_of_2(n), 16"
        ],
    },
    "recurrences/substitution": {
        "the matrix is square": ["inverse: n = a.shape[0] @12: 0 -> 1"],
    },
    "recurrences/two_factors": {
        "a sum from the first token never has what lies behind the last": [
            "decay_kernel: g = tl.load(g_ptr + i, mask=i < T, other=0.0) @41: 0.0 -> None",
            'decay_kernel: g = tl.load(g_ptr + i, mask=i < T, other=0.0) @41: 0.0 -> float("nan")',
        ],
    },
    "recurrences/up_to_and_after": {
        "a running sum from the first token never has what lies behind the last": [
            "factors_kernel: g = tl.load(g_ptr + offs, mask=offs < n, other=0.0) @47: 0.0 -> None",
            'factors_kernel: g = tl.load(g_ptr + offs, mask=offs < n, other=0.0) @47: 0.0 -> float("nan")',
        ],
    },
    "recurrences/reads_the_future": {
        "the last token is the last of its half on every level": [
            "decay_kernel: next_g = tl.load(g_ptr + i + 1, mask=i < T - 1, other=0.0) @54: 0.0 -> None",
            'decay_kernel: next_g = tl.load(g_ptr + i + 1, mask=i < T - 1, other=0.0) @54: 0.0 -> float("nan")',
        ],
    },
    "recurrences/rows_fade": {
        "columns of the state don't meet, and those past the last are not stored": [
            "one_token_kernel: v = tl.load(v_ptr + e, mask=e < D, other=0.0) @41: 0.0 -> None",
            'one_token_kernel: v = tl.load(v_ptr + e, mask=e < D, other=0.0) @41: 0.0 -> float("nan")',
        ],
    },
    "recurrences/state_instead_of_keys": {
        "columns of the state don't meet, and those past the last are not stored": [
            'walk_kernel: v = tl.load(v_ptr + t * D + d, mask=d < D, other=0.0) @49: 0.0 -> float("nan")',
            "walk_kernel: v = tl.load(v_ptr + t * D + d, mask=d < D, other=0.0) @49: 0.0 -> None",
        ],
    },
    "rows/wrong_other": {
        _NAN: [
            'row_max_kernel: x = tl.load(x_ptr + row * stride + columns, mask=columns < N, other=-float("inf")) @68: '
            '-float("inf") -> float("nan")'
        ]
    },
    "rows/one_trip": {
        _NAN: [
            'spread_kernel: x = tl.load(x_ptr + row * stride + columns, mask=mask, other=-float("inf")) @61: '
            '-float("inf") -> float("nan")'
        ]
    },
    "fp8/one_read": {
        _NAN: ['as_stored_kernel: x = tl.load(x_ptr + offs, mask=mask, other=0.0) @43: 0.0 -> float("nan")'],
        "float16 holds every code of e4m3": [
            "as_stored_kernel: tl.store(y_ptr + offs, codes.to(tl.float32) * scale, mask=mask) @32: "
            "tl.float32 -> tl.float16"
        ],
        "zeros stay zeros under any scale, which is not returned": [
            "as_stored_kernel: scale = tl.where(largest == 0, 1.0, tl.div_rn(largest, 448.0)) @31: 1.0 -> 2.0"
        ],
    },
    "moe/bias_in_the_weights": {
        "masked lanes become minus infinity before they are compared": [
            "best_kernel: score = tl.sigmoid(tl.load(logits_ptr + token * stride + e, mask=mask, other=0.0)) @77: "
            "0.0 -> None",
            "best_kernel: choice = tl.where(mask, score + tl.load(bias_ptr + e, mask=mask, other=0.0), "
            'float("-inf")) @71: 0.0 -> float("nan")',
            "best_kernel: choice = tl.where(mask, score + tl.load(bias_ptr + e, mask=mask, other=0.0), "
            'float("-inf")) @71: 0.0 -> None',
        ]
    },
    "moe/weight_without_result": {
        "a product doesn't depend on the order of its factors": [
            "weight_gradient: return sum(x * y for x, y in zip(u, a)) @33: u, a -> a, u",
        ]
    },
    "moe/full_experts": {
        "a masked slot is behind all others, and counts for none of them": [
            "keep_kernel: every = tl.load(experts_ptr + others, mask=others < n, other=-1) @61: -1 -> None",
            'keep_kernel: every = tl.load(experts_ptr + others, mask=others < n, other=-1) @61: -1 -> float("nan")',
        ],
    },
    "moe/stable_rank": {
        "a masked slot is behind all others, and counts for none of them": [
            "ranks_kernel: expert = tl.load(experts_ptr + slot, mask=mask, other=EXPERTS) @54: EXPERTS -> None",
            'ranks_kernel: expert = tl.load(experts_ptr + slot, mask=mask, other=EXPERTS) @54: EXPERTS -> float("nan")',
        ],
        "one lane of a row isn't zero, and it isn't negative": [
            "ranks_kernel: rank = tl.sum(mine * (tl.cumsum(mine, 0) - mine), 1) @10: sum -> max",
        ],
    },
    "fp8/scales_of_columns": {
        _NAN: ['column_codes_kernel: x = tl.load(x_ptr + index, mask=mask, other=0.0) @44: 0.0 -> float("nan")'],
        "float16 holds every code of e4m3": [
            "column_codes_kernel: tl.store(q_ptr + index, q.to(tl.float8e4nv).to(tl.float32), mask=mask) @47: "
            "tl.float32 -> tl.float16"
        ],
    },
    "mx/two_of_a_byte": {
        "float16 holds twelve halves exactly": [
            "weights_kernel: number = halves.to(tl.float32) / 2 @19: tl.float32 -> tl.float16",
        ]
    },
    "fp8/scales_past_the_end": {
        _NAN: [
            "row_scales_kernel: x = tl.load(x_ptrs, mask=(offs_m < M)[:, None] & (offs_n < N)[None, :], other=0.0) "
            '@78: 0.0 -> float("nan")'
        ]
    },
    "recurrences/exclusive": {
        "one lane past the end loads the last element, and isn't stored": [
            "exclusive_kernel: x = tl.load(x_ptr + offs - 1, mask=(offs >= 1) & (offs < n), other=0.0) @55: < -> <="
        ]
    },
    "own_operation/telling": {
        _AXIS: [
            "inputs: y = torch.log_softmax(torch.arange(6.0, device=device.DEVICE).view(2, 3), -1) @74: -1 -> 1",
        ]
    },
    "own_operation/log_softmax": {
        "what masked lanes hold is masked off again when dx is stored": [
            "backward_kernel: y = tl.load(y_ptr + row * N + columns, mask=mask, other=0.0).to(tl.float32) @56: "
            "0.0 -> None",
        ]
    },
    "rows/softmax_gradient": {_AXIS: ["softmax_gradient: dot = (dy * y).sum(dim=-1, keepdim=True) @23: -1 -> 1"]},
    "own_kernel/sum_normalise_gradient": {
        _AXIS: ["sum_normalise_gradient: return (dy - (dy * y).sum(dim=-1, keepdim=True)) / total @30: -1 -> 1"]
    },
    "operations/moments_of_halves": {_ORDER: ["merge: largest = max(a[0], b[0]) @14: a[0], b[0] -> b[0], a[0]"]},
    "operations/clip_by_sign": {
        "no ratio lies exactly at a bound": [
            "slope: if advantage > 0 and ratio > 1 + high: @27: > -> >=",
            "slope: if advantage < 0 and ratio < 1 - low: @27: < -> <=",
        ]
    },
    "operations/dpo_slope": {"between 0 and 1 both forms keep their digits": ["slope: if u > 0: @7: 0 -> 1"]},
    "operations/never_negative": {
        "so many terms of the series are right there, too": [
            "k3: if abs(d) < 0.5: @12: 0.5 -> 1.5",
            "k3: for n in range(2, 20): @18: 20 -> 21",
        ]
    },
    "rows/merge": {_ORDER: ["merge: largest = max(max_a, max_b) @14: max_a, max_b -> max_b, max_a"]},
    "matmul/block_of_program": {
        _ORDER: [
            "block_of_program: group_rows = min(rows - first_row, GROUP_M) @17: "
            "rows - first_row, GROUP_M -> GROUP_M, rows - first_row"
        ]
    },
    "operations/shares": {
        _ORDER: [
            "shares: return min(cdiv(programs, cdiv(N, BLOCK_N)), cdiv(M, BLOCK_M)) @11: "
            "cdiv(programs, cdiv(N, BLOCK_N)), cdiv(M, BLOCK_M) -> cdiv(M, BLOCK_M), cdiv(programs, cdiv(N, BLOCK_N))"
        ]
    },
    "operations/column_sums_of_squares": {
        _ORDER: [
            "column_sums_of_squares: P = min(P, triton.cdiv(M, 16)) @8: P, triton.cdiv(M, 16) -> triton.cdiv(M, 16), P"
        ]
    },
    "model/step_time": {
        _ORDER: [
            "step_time: return max(launches * launch_us / 1e3, gpu_ms), gpu_ms @11: "
            "launches * launch_us / 1e3, gpu_ms -> gpu_ms, launches * launch_us / 1e3"
        ]
    },
    "rows/nan_minus_infinity": {
        _NOTHING: [
            'logsumexp_kernel: biggest, total = -float("inf"), 0.0 @32: 0.0 -> 1.0',
            'logsumexp_kernel: shift = tl.where(new == -float("inf"), 0.0, new) @39: 0.0 -> 1.0',
        ]
    },
    "matmul/diagonal": {"the matrix is square": ["diagonal: n = x.shape[0] @12: 0 -> 1"]},
    "matmul/last_group": {
        "no tile lies past the last row, where every tile is visited once": [
            "visits_kernel: tl.atomic_add(out_ptr + pid_m * tiles_n + pid_n, 1, mask=pid_m < tiles_m) @63: < -> <="
        ],
        "groups of any size visit every tile once": [
            "visits: visits_kernel[(tiles_m * tiles_n,)](out, tiles_m, tiles_n, GROUP=3) @65: 3 -> 4"
        ],
    },
    "matmul/best_group": {
        "a term that is the same for every group size changes no minimum": [
            "loads: return blocks_k * (len({row for row, _ in running}) + len({column for _, column in running})) "
            "@16: * -> +"
        ],
        "a group of more rows than there are is as good as one of all rows, which comes first": [
            "best_group: return min(range(1, rows + 1), key=loaded) @27: 1 -> 2"
        ],
    },
    "gemlite/signed": {
        _EXACT: [
            "weights_kernel: tl.store(out_ptr + k, weight.to(tl.float32), mask=k < n) @32: tl.float32 -> tl.float16"
        ]
    },
    "gemlite/group_of": {
        _EXACT: [
            "dequantize_kernel: tl.store(out_ptr + k, q.to(tl.float32) * scale, mask=k < K) @27: "
            "tl.float32 -> tl.float16"
        ]
    },
    "fast/persistent": {
        "a grid-stride loop is right for any number of programs": [
            "double_rows: double_rows_kernel[(4,)](x, out, M, N, BLOCK_N=triton.next_power_of_2(N)) @20: 4 -> 5"
        ]
    },
    **{
        f"below/{name}": {
            _BIT: [
                f"{kernel}: mbarrier.wait(full.index({index}), ({use} // BUFFERS) & 1) @{column}: "
                f"({use} // BUFFERS) & 1 -> {use} // BUFFERS"
            ]
        }
        for name, kernel, use, index, column in (
            ("ring_phase", "double_kernel", "i", "i % BUFFERS", 39),
            ("store_wait", "double_kernel", "i", "i % BUFFERS", 39),
            ("in_flight", "double_kernel", "i", "i % BUFFERS", 39),
            ("asked_too_early", "product_kernel", "k", "buffer", 34),
            ("first_wait", "multiply", "k", "buffer", 34),
            ("given_back", "multiply", "k", "buffer", 34),
            ("arrive_count", "consume", "i", "buffer", 34),
        )
    },
    "below/most_buffers": {
        _ORDER: [
            "most_buffers: return max(0, (LIMIT - result) // each) @11: "
            "0, (LIMIT - result) // each -> (LIMIT - result) // each, 0"
        ]
    },
    "below/which_layout": {
        "the quotients are rounded down to the same numbers": [
            "layout: across = 64 // wide @9: 64 -> 65",
            "layout: return [1, wide], [32 // across, across], [4, 1], [1, 0] @19: 32 -> 33",
        ]
    },
    "own_kernel/stays_inside": {
        _SIZES: [
            "stays_inside: for N in (5, 8, 33): @10: 5 -> 6",
            "stays_inside: for N in (5, 8, 33): @13: 8 -> 9",
            "stays_inside: for N in (5, 8, 33): @16: 33 -> 34",
            "stays_inside: memory = torch.full((3 * N + 64,), 7.0, device=device.DEVICE) @23: * -> +",
            "stays_inside: memory = torch.full((3 * N + 64,), 7.0, device=device.DEVICE) @21: 3 -> 4",
            "stays_inside: memory = torch.full((3 * N + 64,), 7.0, device=device.DEVICE) @29: 64 -> 65",
        ]
    },
}

#: (exercise, name of the mutant) -> why it is right.
EQUIVALENT = {
    (name, mutant): why for name, reasons in _LISTED.items() for why, some in reasons.items() for mutant in some
}
