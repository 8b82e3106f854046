"""Which tests `make test` leaves to `make test-full`, and what of them it still covers.

`make test` is what a newcomer runs: each check that protects correctness once, on SQLite.
`.ci/run` runs both. `make test-repeats` runs what repeats a path that both have taken.
"""

from collections.abc import Iterable

import pytest

# Rooms, files and tests, each with what of it `make test` still covers.
FULL = {
    "tests/app/api/test_hardening_load.py::test_the_log_of_a_process_names_the_place_and_nobody": "starts processes; tests/app/test_logs.py",
    "tests/app/api/test_hardening_load.py::test_whoever_waits_for_the_log_holds_no_connection": "many callers at once; tests/app/ledger/test_stalls.py",
    "tests/app/cli/test_serve.py::test_a_service_that_is_terminated_ends_its_workers": "processes; tests/e2e",
    "tests/benchmarks": "benchmarks are not the product",
    "tests/e2e": "processes over HTTP and SIGKILL; tests/faults stops at the same steps",
    "tests/faults/test_networks.py": "test_in_process.py stops at every step of a ridge head",
    "tests/interop": "certificates read by other tools; vectors of others are in tests/vectors",
    "tests/migrations/test_schema.py::test_processes_that_migrate_at_once_all_succeed": "one process migrates in the same file",
    "tests/packaging/test_base_install.py": "installs; what imports what is in import-linter",
    "tests/packaging/test_compose.py": "starts all services",
    "tests/packaging/test_dockerfile.py": "installs and starts both images",
    "tests/packaging/test_startup.py": "starts processes; import-linter says what imports what",
    "tests/packaging/test_without_torch.py": "starts processes; import-linter says what imports what",
    "tests/packaging/test_worker_health.py": "starts the image's health check; tests/app/service reads the same queue",
    "tests/redteam/test_imitation.py": "how often an imitation passes; tests/workers/judge has each check",
    "tests/test_servers.py": "the tests' own servers",
    "tests/workers/data/extractors/test_hostile_programs.py::test_mutated_programs_never_crash_hang_or_differ": "the named hostile programs of the same file",
    "tests/workers/demo": "demonstrations; their parts are tested in their rooms",
    "tests/workers/jobs/test_audit_citation.py::test_an_attempt_with_settings_of_its_own_cites_no_audit_of_others": "the newest report is cited in the same file",
    "tests/workers/jobs/test_histories.py::test_one_long_history_on_both_databases": "the drawn history of the same file",
    "tests/workers/jobs/test_ladder.py::test_the_rows_that_go_are_asked_though_no_silo_holds_them_any_more": "test_network_silos.py",
    "tests/workers/jobs/test_ladder.py::test_those_executed_together_escalate_together": "test_batch.py",
    "tests/workers/jobs/test_network_canary.py": "the canary's check is tested in tests/workers/judge",
    "tests/workers/jobs/test_network_certified_hazards.py": "test_network_certified.py, and tests/workers/judge",
    "tests/workers/jobs/test_reference_models.py": "test_network_hazards.py, and tests/redteam",
    "tests/workers/jobs/test_silo_scores.py": "test_network_silos.py, and tests/workers/silos",
    "tests/workers/judge/test_empirical_soundness.py::test_a_stream_of_models_at_the_margin_seldom_passes": "how often; one model of each kind is tested in the same file",
    "tests/workers/methods/network/hf_kcu/test_backdoor.py": "an experiment of the paper; test_method.py compares with a refit",
    "tests/workers/secure_sum/client/test_failures.py::test_a_failed_first_round_leaves_a_model_that_can_be_begun": "a member that drops out, in the same file",
    "tests/workers/secure_sum/client/test_failures.py::test_a_request_whose_only_client_dropped_out_waits_on": "a member that drops out, in the same file",
    "tests/workers/secure_sum/client/test_failures.py::test_a_service_that_does_not_answer_is_waited_for": "tests/lethe/client has every retry",
    "tests/workers/secure_sum/client/test_failures.py::test_a_worker_that_dies_in_between_is_followed_by_another": "test_dishonest_provider.py stops at a step",
    "tests/workers/secure_sum/client/test_failures.py::test_an_id_that_two_members_add": "tests/workers/secure_sum refuses it",
    "tests/workers/secure_sum/client/test_masked_model.py::test_a_request_whose_clients_are_not_all_members_waits_on": "an erasure that waits for a round, in the same file",
    "tests/workers/secure_sum/client/test_masked_model.py::test_all_records_of_a_model": "one record of a model, in the same file",
    "tests/workers/secure_sum/client/test_masked_model.py::test_an_earlier_request_that_took_all_leaves_nothing_to_a_later_one": "several requests, in tests/workers/jobs/test_batch.py",
    "tests/workers/secure_sum/client/test_masked_model.py::test_erased_and_added_in_one_round": "each alone, in the same file",
    "tests/workers/secure_sum/client/test_masked_model.py::test_methods_that_track_an_inverse_are_summed_too": "another method, in the same file",
    "tests/workers/secure_sum/client/test_masked_model.py::test_several_requests_are_completed_by_one_round": "one request, in the same file",
    "tests/workers/secure_sum/client/test_masked_model.py::test_silence_until_the_deadline_goes_to_a_person": "tests/workers/jobs/test_stalled.py",
    "tests/workers/test_recipes.py": "the exercises of docs/development.md",
    "tests/workers/training/fedavg/test_determinism.py::test_another_process_trains_the_same_model": "starts processes; test_rounds.py compares bits in one",
}  # fmt: skip

# Tests of whole installations with several cases that take the same path: `make test` runs the
# first case of each, `make test-full` the others. Each with what the cases differ in.
ONE_CASE = {
    "tests/faults/test_surroundings.py::test_a_full_disk_while_an_artifact_is_written_is_waited_out": "the artifact",
    "tests/workers/data/extractors/test_torch_module.py::test_features_are_those_of_the_module": "how a module is stored",
    "tests/workers/jobs/test_audit_hidden.py::test_a_newer_leak_is_cited_whatever_its_row_says": "the changed column",
    "tests/workers/jobs/test_changed_registration.py::test_no_network_is_published_by_another_configuration": "the changed field and the step",
    "tests/workers/jobs/test_changed_registration.py::test_no_ridge_head_is_published_by_another_configuration": "the changed field and the step",
    "tests/workers/jobs/test_deaths.py::test_an_erasure_that_kills_its_worker_waits_for_a_decision": "the stage",
    "tests/workers/jobs/test_histories.py::test_any_history_ends_as_a_fit_of_what_remains": "the seed",
    "tests/workers/jobs/test_network_hazards.py::test_a_retraining_that_is_none_is_refuted": "how the worker cheats; tests/workers/judge has each",
    "tests/workers/jobs/test_network_silos.py::test_every_version_is_the_one_of_a_single_process": "the method",
    "tests/workers/jobs/test_networks.py::test_what_no_test_has_the_power_to_show_escalates_to_retraining": "what lacks power",
    "tests/workers/judge/recheck/test_another_version.py::test_an_attempt_that_another_version_judged_otherwise_is_told_as_such": "the version",
    "tests/workers/methods/network/hf_kcu/test_backdoor.py::test_the_trigger_stops_working": "the settings",
    "tests/workers/methods/network/test_cycles.py::test_killed_after_any_save_cycles_go_on_to_the_same_bits": "the moment",
    "tests/workers/secure_sum/client/test_changed_rows.py::test_a_round_whose_members_were_changed_fails": "the changed column",
    "tests/workers/secure_sum/client/test_changed_rows.py::test_no_sum_is_published_by_another_configuration": "the changed column",
    "tests/workers/secure_sum/client/test_changed_rows.py::test_nothing_is_summed_of_members_that_were_changed": "the changed column",
    "tests/workers/secure_sum/client/test_dishonest_provider.py::test_a_worker_that_dies_at_a_step_of_a_round_is_replaced": "the step; tests/faults has all of an erasure",
    "tests/workers/secure_sum/client/test_failures.py::test_a_member_that_drops_out_at_a_step_is_done_without": "the step",
    "tests/workers/secure_sum/client/test_failures.py::test_a_sum_that_no_rows_have_is_refused": "what is wrong with the sum",
    "tests/workers/secure_sum/client/test_failures.py::test_too_few_that_stay_end_the_round_and_a_new_one_works": "the step",
    "tests/workers/secure_sum/client/test_masked_model.py::test_methods_that_track_an_inverse_are_summed_too": "the method",
    "tests/workers/training/fedavg/test_curvature.py::test_every_kind_of_layer_has_both_products": "the architecture",
}  # fmt: skip

# Here a difference between databases is the point: locks, leases, triggers, grants.
BOTH_DATABASES = ("tests/app/ledger", "tests/migrations", "tests/models")
# Here a step that fails is another transaction that rolls back: PostgreSQL sees each.
EVERY_CASE_ON_BOTH = ("tests/faults", "tests/e2e", "tests/packaging")


def assign(items: Iterable[pytest.Item]) -> None:
    """Mark what `make test` leaves out with `full`, and what repeats a path with `repeats`.

    Elsewhere than above, PostgreSQL runs the first case of each test: the other cases send
    it the same statements with other values.
    """
    seen: set[tuple[str, bool]] = set()
    for item in items:
        function = item.nodeid.partition("[")[0]
        given = getattr(getattr(item, "callspec", None), "params", {}).values()
        second = any(isinstance(one, str) and one == "postgresql" for one in given)
        further = (function, second) in seen
        seen.add((function, second))
        if item.nodeid.startswith(BOTH_DATABASES):
            continue
        if second and further and not item.nodeid.startswith(EVERY_CASE_ON_BOTH):
            item.add_marker(pytest.mark.repeats)
        if (
            second
            or item.nodeid.startswith(tuple(FULL))
            or (further and function in ONE_CASE)
            or item.get_closest_marker("full")
        ):
            item.add_marker(pytest.mark.full)
