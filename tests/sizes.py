"""Which tests `make coverage` leaves to `make test-full`, and what of them it still covers.

`make coverage` runs each check that protects correctness once, on SQLite; `.ci/run` runs both.
`make test`, which a newcomer runs, is a choice of the first (`tests.quick`). `make test-repeats`
runs what repeats a path that both have taken.
"""

from collections.abc import Iterable
from pathlib import Path

import pytest

# Rooms, files and tests, each with what of it `make coverage` still covers.
FULL = {
    "tests/app/api/http/test_hardening_load.py::test_the_log_of_a_process_names_the_place_and_nobody": "starts processes; tests/app/test_logs.py",
    "tests/app/api/http/test_hardening_load.py::test_whoever_waits_for_the_log_holds_no_connection": "many callers at once; tests/app/ledger/test_stalls.py",
    "tests/app/api/test_rounds.py::test_a_single_record_is_warned_about": "a message of a single record, in tests/workers/jobs/families/test_statistics_model.py",
    "tests/app/api/test_rounds.py::test_masked_inputs_that_are_not_taken": "tests/workers/secure_sum has each refusal",
    "tests/app/hsm/tokens": "needs SoftHSM of the system; tests/app/keys has each rotation and refusal of keys in files",
    "tests/app/keys/test_master_key.py::test_a_backup_from_before_needs_the_master_key_of_then": "restores; tests/app/cli/test_backup.py",
    "tests/app/keys/test_master_key.py::test_a_key_of_the_environment_is_replaced_by_another": "a key in a file, in the same file",
    "tests/app/keys/test_master_key.py::test_a_killed_rotation_leaves_a_key_that_opens_and_can_be_repeated": "every step; a whole rotation in the same file",
    "tests/app/keys/test_master_key.py::test_an_attacker_who_can_write_the_root_alone_has_nothing_accepted": "an altered file, in tests/app/vault/test_seal.py",
    "tests/app/keys/test_ml_dsa_key.py::test_an_interrupted_revocation_goes_on": "tests/app/keys/test_log_key.py, by the same code for the other role",
    "tests/app/keys/test_ml_dsa_key.py::test_an_interrupted_rotation_goes_on": "tests/app/keys/test_log_key.py, by the same code for the other role",
    "tests/app/keys/test_restored.py": "restores with later keys; tests/app/cli/test_backup.py restores, tests/app/keys has each rotation",
    "tests/app/cli/test_backup_follow.py::test_a_piece_that_rotted_is_written_again": "restores twice; other tests of the file refuse a changed piece",
    "tests/app/cli/test_backup_follow.py::test_a_state_from_before_an_erasure_brings_nobody_back": "tests/app/cli/test_backup.py restores from before an erasure",
    "tests/app/cli/test_backup_follow.py::test_of_a_lost_machine_directory_keys_and_a_mirror_are_enough": "restores and recovers; other tests of the file do the one and copy keys",
    "tests/app/cli/test_point_in_time.py": "starts three servers; test_backup.py restores older databases",
    "tests/app/cli/test_serve.py::test_a_service_that_is_terminated_ends_its_workers": "processes; tests/e2e",
    "tests/benchmarks": "benchmarks are not the product",
    "tests/docs/test_estimators_page.py::test_the_example_prints_what_the_page_says": "tests/lethe/estimators has each call of the example",
    "tests/docs/tried/test_pages.py": "processes; tests/docs/test_commands.py knows the commands and options",
    "tests/e2e": "processes over HTTP and SIGKILL; tests/faults stops at the same steps",
    "tests/faults/test_networks.py": "test_in_process.py stops at every step of a ridge head",
    "tests/interop": "certificates read by other tools; vectors of others are in tests/vectors",
    "tests/lethe/estimators/forest/test_forest.py::test_row_by_row_to_nothing_and_back": "any history, in the same file",
    "tests/lethe/estimators/test_models.py": "accuracy beside scikit-learn's; test_removal.py compares with refits",
    "tests/lethe/estimators/test_scikit_learn.py": "scikit-learn's own checks; test_removal.py fits each estimator",
    "tests/lethe/web/test_log.py": "vectors of the log, by the verifier in Python; test_families.py and test_certificates.py have both",
    "tests/lethe/web/test_tampering.py": "changed bytes, by both verifiers, in test_families.py",
    "tests/lethe/witness/test_process.py": "processes and SIGKILL; test_witness.py stops between head and signature",
    "tests/migrations/test_schema.py::test_processes_that_migrate_at_once_all_succeed": "one process migrates in the same file",
    "tests/packaging/test_base_install.py": "installs; what imports what is in import-linter",
    "tests/packaging/test_compose.py": "starts all services",
    "tests/packaging/test_dockerfile.py": "installs and starts both images",
    "tests/packaging/test_monitoring.py::test_each_rule_fires_on_its_fault_alone": "needs promtool of the system; what the rules ask for, in the same file",
    "tests/packaging/test_sbom.py": "starts scripts, which are not the product and would be measured",
    "tests/packaging/test_site.py": "builds the site; tests/docs follows each link",
    "tests/packaging/test_startup.py": "starts processes; import-linter says what imports what",
    "tests/packaging/test_without_torch.py": "starts processes; import-linter says what imports what",
    "tests/packaging/test_worker_health.py": "starts the image's health check; tests/app/service reads the same queue",
    "tests/redteam/test_imitation.py": "how often an imitation passes; tests/workers/judge has each check",
    "tests/test_servers.py": "the tests' own servers",
    "tests/workers/jobs/attempts/test_mend.py::test_a_family_that_is_fitted_elsewhere_is_mended_too": "a ridge head, in the same file",
    "tests/workers/jobs/attempts/test_mend.py::test_a_network_is_trained_again_to_the_same_bits": "a ridge head, in the same file",
    "tests/workers/jobs/attempts/test_mend.py::test_an_error_of_the_fit_itself_ends_the_job_and_says_so": "a disk that is full, in the same file",
    "tests/workers/cli/test_foreign_answers.py": "a hundred runs of each command; the same seam, in tests/lethe/cli/test_foreign_answers.py",
    "tests/workers/cli/models/test_model_mend.py": "tests/workers/jobs/attempts/test_mend.py asks the service",
    "tests/workers/jobs/families/test_vectors_family.py::test_all_rows_may_leave": "an erasure, in the same file; the files of no row are in tests/workers/training/vectors",
    "tests/workers/jobs/families/test_vectors_family.py::test_what_is_contributed_is_in_the_index_and_leaves_it": "a registration and an erasure, in the same file",
    "tests/workers/data/extractors/test_hostile_programs.py::test_mutated_programs_never_crash_hang_or_differ": "the named hostile programs of the same file",
    "tests/workers/demo": "demonstrations; their parts are tested in their rooms",
    "tests/workers/jobs/attempts/test_attempts_since.py::test_what_is_left_out_is_told_and_logged_of_all_that_escalate_together": "an attempt that is left out, in test_ladder_end.py",
    "tests/workers/jobs/method_audits/test_audit_citation.py::test_an_attempt_with_settings_of_its_own_cites_no_audit_of_others": "the newest report is cited in the same file",
    "tests/workers/jobs/method_audits/test_audit_citation.py::test_another_configuration_than_was_started_is_not_cited": "test_audit_trust.py has a configuration that was changed",
    "tests/workers/jobs/method_audits/test_audit_citation.py::test_the_log_says_which_method_made_the_model_and_a_decision_may_have_it_made_anew": "the newest report is cited in the same file",
    "tests/workers/jobs/method_audits/test_audit_hidden.py::test_a_deleted_audit_is_listed_as_missing_with_its_report": "a newer leak that is hidden, in the same file",
    "tests/workers/jobs/method_audits/test_audit_hidden.py::test_a_deleted_audit_that_never_ended_is_missing_too": "a newer leak that is hidden, in the same file",
    "tests/workers/jobs/method_audits/test_audit_hidden.py::test_a_report_that_is_not_stored_is_missing_and_no_older_one_is_cited": "a newer leak that is hidden, in the same file",
    "tests/workers/jobs/method_audits/test_audit_hidden.py::test_an_older_audit_that_is_put_back_to_run_after_another_start_reports_nothing": "a newer leak that is hidden, in the same file",
    "tests/workers/jobs/method_audits/test_audit_trust.py::test_a_row_that_is_no_audit_of_the_log_ends_without_an_entry": "a row that says otherwise than the log, in the same file",
    "tests/workers/jobs/method_audits/test_audit_trust.py::test_each_field_of_a_report_is_held_to_log_or_mac": "one field, in the same file",
    "tests/workers/jobs/method_audits/test_audit_trust.py::test_no_report_is_signed_of_a_model_that_is_not_as_it_was_registered": "a model that was trained otherwise, in the same file",
    "tests/workers/jobs/method_audits/test_audits.py::test_a_worker_that_dies_before_the_report_leaves_it_to_the_next": "a killed worker, in the same file",
    "tests/workers/jobs/method_audits/test_audits.py::test_an_audit_that_is_due_is_started_anew_with_another_seed": "an audit is started in the same file",
    "tests/workers/jobs/method_audits/test_audits.py::test_records_may_be_erased_while_an_audit_runs_and_are_used_no_more": "records that are erased after one, in the same file",
    "tests/workers/jobs/method_audits/test_audits.py::test_reports_differ_in_nothing_but_who_and_when": "pairs are computed alike in the same file",
    "tests/workers/jobs/families/test_bad_input.py::test_what_only_a_worker_finds_fails_the_model_and_keeps_no_row": "starts a process; test_recipe_family.py has each refusal",
    "tests/workers/jobs/test_batch.py::test_a_refit_of_a_later_one_leaves_the_earlier_certificate": "a refit of the first, in the same file",
    "tests/workers/jobs/test_batch.py::test_a_request_that_waits_for_others_can_be_withdrawn": "tests/app/api/test_requests.py withdraws one",
    "tests/workers/jobs/test_batch.py::test_a_second_try_goes_alone": "an error of one request, in the same file",
    "tests/workers/jobs/test_batch.py::test_a_worker_that_lost_its_lease_commits_nothing_for_the_others": "one that lost one of its jobs, in the same file",
    "tests/workers/jobs/test_batch.py::test_all_of_a_model_can_go_in_one_update": "everything can be erased, in test_stages.py",
    "tests/workers/jobs/test_batch.py::test_another_method_or_kind_behind_them_ends_the_waiting": "requests of another method, in the same file",
    "tests/workers/jobs/test_batch.py::test_nothing_waits_when_its_deadline_is_near": "one that has waited long enough, in the same file",
    "tests/workers/jobs/test_batch.py::test_one_at_a_time_each_goes_alone_and_can_be_withdrawn": "who waits alone, in test_stages.py",
    "tests/workers/jobs/test_batch.py::test_what_waits_when_a_worker_is_free_goes_together": "requests that wait for one another, in the same file",
    "tests/workers/jobs/lineage/test_changed_registration.py::test_giving_up_what_was_not_begun_lets_the_next_one_run": "what was held goes on, in the same file",
    "tests/workers/jobs/lineage/test_changed_registration.py::test_no_retraining_is_published_by_another_configuration": "a network of the same change, in the same file",
    "tests/workers/jobs/lineage/test_changed_registration.py::test_what_is_changed_and_set_back_in_between_is_not_used": "what stays changed, in the same file",
    "tests/workers/jobs/leases/test_deaths.py::test_a_round_that_kills_its_worker_fails": "learning and an erasure that kill it, in the same file",
    "tests/workers/jobs/leases/test_deaths.py::test_a_worker_that_fails_and_lives_does_not_count": "tries are counted in test_stages.py",
    "tests/workers/jobs/leases/test_deaths.py::test_given_up_it_makes_room_for_what_waits_behind_it": "a request that is given up, in test_stages.py",
    "tests/workers/jobs/attempts/test_decisions_together.py::test_a_retry_of_the_first_goes_on_with_the_others": "test_decisions.py has a retry",
    "tests/workers/jobs/attempts/test_decisions_together.py::test_each_can_be_given_up_and_nothing_of_them_is_left": "test_decisions.py has one that is given up",
    "tests/workers/jobs/desk/test_entitlement.py::test_rows_of_another_subject_that_come_in_between_stay": "rows of another client, in the same file",
    "tests/workers/jobs/desk/test_entitlement.py::test_statistics_of_another_client_stay_and_nobody_is_asked_for_them": "rows of another client, in the same file",
    "tests/workers/jobs/test_group_statements.py": "what a group costs; test_batch.py has what it does",
    "tests/workers/jobs/families/test_held_out_families.py::test_a_masked_model_is_measured_on_the_operators_rows": "figures of a ridge head are in test_held_out.py, and rounds in the same file",
    "tests/workers/jobs/lineage/test_histories.py::test_one_long_history_on_both_databases": "the drawn history of the same file",
    "tests/workers/jobs/attempts/test_ladder.py::test_a_later_attempt_that_passes_is_certified_as_what_it_is": "three attempts and their escalations, in the same file",
    "tests/workers/jobs/attempts/test_ladder.py::test_an_attempt_without_a_model_gives_way_to_the_retraining_in_the_log": "test_network_endings.py",
    "tests/workers/jobs/attempts/test_ladder.py::test_the_rows_that_go_are_asked_though_no_silo_holds_them_any_more": "test_network_silos.py",
    "tests/workers/jobs/attempts/test_ladder.py::test_those_executed_together_escalate_together": "test_batch.py",
    "tests/workers/jobs/attempts/test_ladder_end.py::test_an_attempt_that_has_become_too_late_is_not_begun": "test_network_ladder.py has what is too late",
    "tests/workers/jobs/attempts/test_ladder_end.py::test_an_attempt_that_raises_again_and_again_gives_way": "test_network_endings.py has what a method raises",
    "tests/workers/jobs/attempts/test_ladder_end.py::test_the_judge_finds_it_too": "test_network_ladder.py has each verdict",
    "tests/workers/jobs/attempts/test_ladder_end.py::test_what_no_other_method_would_change_is_retrained_at_once": "test_network_ladder.py has each verdict",
    "tests/workers/jobs/cases/test_logged_counts.py::test_a_seed_that_was_chosen_is_no_judgement": "emptied tables and changed columns, in the same file",
    "tests/workers/jobs/cases/test_logged_counts.py::test_after_a_training_that_nobody_repeated_there_is_no_budget": "which trainings begin a budget, in the same file",
    "tests/workers/jobs/cases/test_logged_counts.py::test_who_kills_a_judge_and_empties_its_seed_spends_alpha_again": "emptied tables and changed columns, in the same file",
    "tests/workers/jobs/cases/test_logged_judgement.py::test_a_record_whose_claim_is_taken_away_is_missed": "each table that says otherwise, in the same file",
    "tests/workers/jobs/cases/test_logged_judgement.py::test_what_was_stopped_can_be_made_anew_by_decision": "test_decisions.py has a retry",
    "tests/workers/jobs/lineage/test_moved_contents.py::test_a_version_with_the_root_of_another_set_is_refitted": "a version that points at another entry, in the same file",
    "tests/workers/jobs/families/network/test_network_canary.py": "the canary's check is tested in tests/workers/judge",
    "tests/workers/jobs/families/network/test_network_certified.py::test_hf_kcu_gets_noise_where_it_is_registered_and_says_nothing_of_its_step": "the bound without noise, in the same file",
    "tests/workers/jobs/families/network/test_network_certified.py::test_requests_of_one_update_are_one_release_and_need_no_held_out_row": "a stream of requests, in the same file",
    "tests/workers/jobs/families/network/test_network_certified_hazards.py": "test_network_certified.py, and tests/workers/judge",
    "tests/workers/jobs/families/network/test_network_endings.py::test_a_later_attempt_that_runs_out_of_memory_gives_way_too": "the first attempt, in the same file",
    "tests/workers/jobs/families/network/test_network_gpu.py::test_a_later_attempt_that_a_gpu_is_too_small_for_gives_way_too": "the first attempt, in the same file",
    "tests/workers/jobs/families/network/test_network_silos.py::test_a_client_that_fails_is_left_out_and_the_verifier_leaves_it_out_too": "tests/workers/silos; the versions are those of one process, in the same file",
    "tests/workers/jobs/families/network/test_network_silos.py::test_a_retraining_waits_for_silos_that_are_all_gone": "test_stalled.py has what waits for a machine",
    "tests/workers/jobs/families/network/test_network_silos.py::test_a_target_whose_silo_is_gone_is_refused_with_a_remedy": "tests/workers/silos has rows and silos that are gone",
    "tests/workers/jobs/families/network/test_networks.py::test_a_method_that_lacks_something_refuses_and_names_another": "tests/workers/methods/network has each refusal",
    "tests/workers/jobs/families/network/test_networks.py::test_a_step_that_is_never_safe_gives_way_to_retraining_in_the_log": "test_network_endings.py",
    "tests/workers/jobs/families/network/test_networks.py::test_every_method_runs_from_a_request": "one method, in the same file; tests/workers/methods/network has each",
    "tests/workers/jobs/families/network/test_networks.py::test_masks_are_learned_and_forgotten_too": "tests/workers/training has masks and their loss",
    "tests/workers/jobs/families/network/test_networks.py::test_requests_one_after_another_forget_all_that_was_asked": "test_histories.py; a stream of requests in test_network_certified.py",
    "tests/workers/jobs/families/network/test_networks.py::test_requests_that_wait_for_one_another_are_forgotten_in_one_step": "test_batch.py",
    "tests/workers/jobs/families/network/test_networks.py::test_the_last_client_can_leave_too": "everything can be erased, in test_stages.py",
    "tests/workers/jobs/families/network/test_networks.py::test_without_held_out_rows_a_guarded_step_gives_way_to_retraining": "test_network_endings.py",
    "tests/workers/jobs/families/network/test_progress.py::test_a_stage_that_begins_does_not_show_the_end_of_the_one_before": "a whole escalation, in the same file",
    "tests/workers/jobs/families/network/test_reference_models.py": "test_network_hazards.py, and tests/redteam",
    "tests/workers/jobs/cases/test_planted_tables.py": "each family's own file has changes of its tables",
    "tests/workers/jobs/cases/test_rewound.py::test_what_was_refuted_is_not_judged_again": "it is not executed either, in the same file",
    "tests/workers/jobs/families/test_ridge_family.py::test_learning_and_unlearning_alternate_within_the_certified_bound": "methods that take turns on one model, in the same file",
    "tests/workers/jobs/families/network/test_silo_scores.py": "test_network_silos.py, and tests/workers/silos",
    "tests/workers/jobs/leases/test_stages.py::test_a_full_disk_is_waited_out": "tests/faults has a full disk",
    "tests/workers/jobs/leases/test_stalled.py::test_a_wait_that_ended_is_forgotten_before_anybody_judges": "a wait ends by itself, in the same file",
    "tests/workers/jobs/leases/test_stalled.py::test_who_waits_behind_a_wait_may_still_withdraw": "tests/app/api/test_requests.py withdraws one",
    "tests/workers/jobs/families/test_statistics_hazards.py::test_a_client_scope_needs_no_answer_in_a_batch": "a client alone, in test_statistics_model.py",
    "tests/workers/jobs/families/test_statistics_hazards.py::test_a_dropped_block_waits_for_the_others_that_need_more": "requests for a dropped block, in the same file",
    "tests/workers/jobs/families/test_statistics_hazards.py::test_a_sketched_client_is_erased": "its records, in the same file",
    "tests/workers/jobs/families/test_statistics_hazards.py::test_an_answer_sent_again_is_answered_the_same": "a message that is sent again, in tests/app/api/test_rounds.py",
    "tests/workers/jobs/families/test_statistics_hazards.py::test_records_of_a_waiting_request_are_not_certified_before_they_are_gone": "test_what_came_back_is_not_taken_by_a_request_from_before",
    "tests/workers/jobs/families/test_statistics_hazards.py::test_the_rest_of_a_block_needs_no_answer": "requests for a dropped block, in the same file",
    "tests/workers/jobs/families/test_statistics_hazards.py::test_who_waits_for_a_withdrawn_companion_is_executed_all_the_same": "a request that waits for its client, in the same file",
    "tests/workers/jobs/families/test_statistics_model.py::test_a_first_message_that_fails_does_not_fail_the_model": "statistics that are refused, in the same file",
    "tests/workers/jobs/families/test_statistics_model.py::test_a_request_over_several_clients_waits_for_all": "one client, in the same file",
    "tests/workers/jobs/families/test_statistics_model.py::test_two_requests_for_one_client_are_both_answered": "one request, in the same file",
    "tests/workers/judge/samples/test_empirical_soundness.py::test_a_provider_who_perturbs_or_relabels_is_not_accepted": "a provider who does nothing, in the same file",
    "tests/workers/judge/samples/test_empirical_soundness.py::test_a_stream_of_models_at_the_margin_seldom_passes": "how often; one model of each kind is tested in the same file",
    "tests/workers/judge/samples/test_empirical_soundness.py::test_nor_at_the_edge_where_controls_barely_pass": "a provider who does nothing, in the same file",
    "tests/workers/methods/certified/test_method.py::test_from_far_away_steps_are_halved_and_the_end_is_the_same": "the optimum of those who stay, in the same file",
    "tests/workers/methods/network/baselines/test_central.py::test_images_in_augmented_batches_run_through_every_method": "tests/workers/training/fedavg has augmented batches",
    "tests/workers/methods/network/hf_kcu/test_backdoor.py": "an experiment of the paper; test_method.py compares with a refit",
    "tests/workers/methods/network/hf_kcu/test_faults.py::test_a_target_that_answers_nonsense_is_done_without": "a client that breaks, in the same file",
    "tests/workers/methods/network/hf_kcu/test_method.py::test_a_preconditioner_changes_the_way_and_not_the_goal": "test_conjugate_gradients.py",
    "tests/workers/methods/network/hf_kcu/test_method.py::test_some_clients_may_lend_the_matrix": "test_memorised.py has a share of the rows",
    "tests/workers/methods/network/hf_kcu/test_method.py::test_the_bound_holds_against_a_client_that_poisons": "test_bounds.py has poisoned pairs",
    "tests/workers/methods/ridge/test_ridge_exact.py::test_retraining_in_another_process_gives_the_same_file": "starts processes; test_canonical_head.py compares bits in one",
    "tests/workers/secure_sum/client/test_changed_rows.py::test_no_sum_is_published_by_another_configuration": "a round whose members were changed, in the same file",
    "tests/workers/secure_sum/client/test_changed_rows.py::test_nothing_is_summed_of_members_that_were_changed": "a round whose members were changed, in the same file",
    "tests/workers/secure_sum/client/test_dishonest_provider.py::test_a_worker_that_dies_at_a_step_of_a_round_is_replaced": "tests/faults stops at every step of an erasure",
    "tests/workers/secure_sum/client/test_dishonest_server.py::test_a_process_that_went_learns_how_its_round_ended": "who was given up is told, in test_failures.py",
    "tests/workers/secure_sum/client/test_failures.py::test_a_failed_first_round_leaves_a_model_that_can_be_begun": "a member that drops out, in the same file",
    "tests/workers/secure_sum/client/test_failures.py::test_a_request_is_not_completed_by_half_of_its_clients": "an erasure that waits for a round, in test_masked_model.py",
    "tests/workers/secure_sum/client/test_failures.py::test_a_request_whose_only_client_dropped_out_waits_on": "a member that drops out, in the same file",
    "tests/workers/secure_sum/client/test_failures.py::test_a_service_that_does_not_answer_is_waited_for": "tests/lethe/client has every retry",
    "tests/workers/secure_sum/client/test_failures.py::test_a_sum_that_no_rows_have_is_refused": "tests/workers/secure_sum and tests/workers/judge/ridge/test_masked.py have each forged sum",
    "tests/workers/secure_sum/client/test_failures.py::test_a_worker_that_dies_in_between_is_followed_by_another": "test_dishonest_provider.py stops at a step",
    "tests/workers/secure_sum/client/test_failures.py::test_an_id_that_two_members_add": "tests/workers/secure_sum refuses it",
    "tests/workers/secure_sum/client/test_failures.py::test_too_few_that_stay_end_the_round_and_a_new_one_works": "tests/workers/secure_sum/test_round.py refuses too few",
    "tests/workers/secure_sum/client/test_masked_model.py::test_a_bound_key_releases_its_clients_rows_only": "test_entitlement.py has bound keys",
    "tests/workers/secure_sum/client/test_masked_model.py::test_a_request_whose_clients_are_not_all_members_waits_on": "an erasure that waits for a round, in the same file",
    "tests/workers/secure_sum/client/test_masked_model.py::test_all_records_of_a_model": "one record of a model, in the same file",
    "tests/workers/secure_sum/client/test_masked_model.py::test_an_earlier_request_that_took_all_leaves_nothing_to_a_later_one": "several requests, in tests/workers/jobs/test_batch.py",
    "tests/workers/secure_sum/client/test_masked_model.py::test_erased_and_added_in_one_round": "each alone, in the same file",
    "tests/workers/secure_sum/client/test_masked_model.py::test_methods_that_track_an_inverse_are_summed_too": "another method, in the same file",
    "tests/workers/secure_sum/client/test_masked_model.py::test_several_requests_are_completed_by_one_round": "one request, in the same file",
    "tests/workers/secure_sum/client/test_masked_model.py::test_silence_until_the_deadline_goes_to_a_person": "tests/workers/jobs/leases/test_stalled.py",
    "tests/workers/test_recipes.py": "the exercises of docs/development.md",
    "tests/workers/training/recipes/test_prepared.py::test_one_of_another_process_is_not_used": "starts processes; another that starts one, in the same file",
    "tests/workers/training/recipes/test_prepared.py::test_one_that_was_killed_is_started_again": "starts processes; another that starts one, in the same file",
    "tests/workers/training/recipes/test_prepared.py::test_where_none_starts_a_process_is_started": "starts processes; test_while_it_is_in_use_a_process_is_started, in the same file",
    "tests/workers/training/fedavg/test_determinism.py::test_another_process_trains_the_same_model": "starts processes; test_rounds.py compares bits in one",
    "tests/workers/training/fedavg/test_losses.py::test_a_segmentation_network_learns_a_mask": "tests/workers/training/networks has its gradients",
    "tests/workers/jobs/families/test_forest_family.py::test_all_rows_may_leave": "everything can be erased, in test_stages.py; any history, in tests/lethe/estimators/forest",
    "tests/workers/jobs/families/test_forest_family.py::test_what_is_contributed_is_in_the_forest_and_leaves_it": "the same of sums, in test_sums_family.py; any history, in tests/lethe/estimators/forest",
    "tests/workers/jobs/families/test_recipe_family.py::test_a_fit_that_fails_keeps_the_request_for_an_operator": "starts processes; tests/workers/training/recipes/test_process.py has what fails, test_stages.py what is given up",
    "tests/workers/jobs/families/test_recipe_family.py::test_a_worker_that_dies_is_followed_by_another": "tests/faults stops at every step of an erasure",
    "tests/workers/jobs/families/test_recipe_family.py::test_the_last_row_goes_too": "everything can be erased, in test_stages.py",
    "tests/workers/jobs/families/test_shards_family.py::test_a_contribution_is_learned_by_the_shards_that_get_rows": "a contribution, in test_recipe_family.py",
    "tests/workers/jobs/families/test_shards_family.py::test_a_program_in_shards_is_run_for_those_that_held_the_rows": "starts processes; a recipe in shards, in the same file, and a program, in test_script_family.py",
    "tests/workers/jobs/families/test_shards_family.py::test_requests_in_several_shards_are_fitted_and_judged_together": "requests that are fitted together, in test_recipe_family.py",
    "tests/workers/jobs/families/test_sums_family.py::test_all_rows_may_leave": "everything can be erased, in test_stages.py; tests/lethe/estimators/sums",
}  # fmt: skip

# Tests of whole installations with several cases that take the same path: `make coverage` runs the
# first case of each, `make test-full` the others. Each with what the cases differ in.
ONE_CASE = {
    "tests/lethe/estimators/forest/test_forest.py::test_any_history_gives_the_bytes_of_a_refit": "the seed and the size of the forest",
    "tests/lethe/estimators/forest/test_forest.py::test_a_sealed_state_goes_on_as_the_forest": "the number of classes",
    "tests/lethe/estimators/forest/test_forest.py::test_the_trees_are_those_of_plain_fractions": "the number of classes and what is kept",
    "tests/lethe/estimators/forest/test_forest.py::test_what_is_kept_changes_nothing_that_is_published": "the number of classes",
    "tests/lethe/estimators/test_removal.py::test_unlearning_gives_the_bytes_of_a_refit": "the estimator; test_golden.py has bytes of each",
    "tests/app/api/test_exchanged_certificates.py::test_nobody_is_served_the_certificate_of_another": "what is exchanged besides",
    "tests/app/api/test_exchanged_certificates.py::test_what_is_no_certificate_is_not_served": "what is stored instead",
    "tests/app/console/test_exchanged.py::test_no_page_or_file_is_of_another_request": "what is exchanged besides",
    "tests/app/reconcile/test_fsck_journal.py::test_each_difference_is_found": "the difference",
    "tests/faults/test_surroundings.py::test_a_full_disk_while_an_artifact_is_written_is_waited_out": "the artifact",
    "tests/workers/data/extractors/test_torch_module.py::test_features_are_those_of_the_module": "how a module is stored",
    "tests/workers/jobs/method_audits/test_audit_hidden.py::test_a_newer_leak_is_cited_whatever_its_row_says": "the changed column",
    "tests/workers/jobs/lineage/test_changed_registration.py::test_no_network_is_published_by_another_configuration": "the changed field and the step",
    "tests/workers/jobs/lineage/test_changed_registration.py::test_no_ridge_head_is_published_by_another_configuration": "the changed field and the step",
    "tests/workers/jobs/leases/test_deaths.py::test_an_erasure_that_kills_its_worker_waits_for_a_decision": "the stage",
    "tests/workers/jobs/lineage/test_histories.py::test_any_history_ends_as_a_fit_of_what_remains": "the seed",
    "tests/workers/jobs/families/network/test_network_hazards.py::test_a_retraining_that_is_none_is_refuted": "how the worker cheats; tests/workers/judge has each",
    "tests/workers/jobs/families/network/test_network_silos.py::test_every_version_is_the_one_of_a_single_process": "the method",
    "tests/workers/jobs/families/network/test_networks.py::test_what_no_test_has_the_power_to_show_escalates_to_retraining": "what lacks power",
    "tests/workers/judge/recheck/test_another_version.py::test_an_attempt_that_another_version_judged_otherwise_is_told_as_such": "the version",
    "tests/workers/judge/ridge/test_masked.py::test_statistics_off_by_one_anywhere": "which statistic; test_resummed.py has any entry",
    "tests/workers/judge/test_merkle.py::test_sets_that_shrink_step_by_step": "the size",
    "tests/workers/judge/ridge/test_reading.py::test_blocks_are_let_go_of_whatever_their_number": "the mode and the number of blocks",
    "tests/workers/judge/ridge/test_residual.py::test_wide_products_of_extreme_codes_stay_exact": "the width",
    "tests/workers/methods/network/hf_kcu/test_backdoor.py::test_the_trigger_stops_working": "the settings",
    "tests/workers/methods/network/hf_kcu/test_faults.py::test_a_client_that_breaks_is_named_and_left_out": "how it breaks",
    "tests/workers/methods/network/hf_kcu/test_memorised.py::test_elsewhere_the_step_is_the_whole_or_the_one_asked_for": "the setting",
    "tests/workers/methods/network/hf_kcu/test_method.py::test_the_model_comes_near_the_refit_and_the_printed_step_goes_away": "who leaves",
    "tests/workers/methods/network/hf_kcu/test_method.py::test_the_step_is_newtons_to_float32": "the model",
    "tests/workers/methods/network/test_cycles.py::test_cycles_are_the_method_again_on_what_it_gave": "the method",
    "tests/workers/methods/network/test_cycles.py::test_killed_after_any_save_cycles_go_on_to_the_same_bits": "the moment",
    "tests/workers/methods/network/test_estimate.py::test_no_run_takes_more_than_was_reckoned": "the method; its settings",
    "tests/workers/methods/network/test_resume.py::test_killed_after_any_save_it_goes_on_to_the_same_bits": "the method",
    "tests/workers/methods/network/test_resume.py::test_the_notes_say_where_and_in_which_precision": "the method",
    "tests/workers/methods/ridge/test_messages.py::test_any_mixture_of_rows_and_messages_is_a_refit_on_the_retained_rows": "the method; test_tracked_methods.py",
    "tests/workers/methods/ridge/test_resets.py::test_whatever_the_inverse_holds_the_bound_is_true": "the method",
    "tests/workers/methods/ridge/test_tracked_methods.py::test_a_penalty_too_small_for_float64_is_refused_when_learning": "the method",
    "tests/workers/methods/ridge/test_tracked_methods.py::test_any_stream_has_the_statistics_of_a_refit_and_a_head_within_its_bound": "the method",
    "tests/workers/secure_sum/client/test_changed_rows.py::test_a_round_whose_members_were_changed_fails": "the changed column",
    "tests/workers/secure_sum/client/test_changed_rows.py::test_no_sum_is_published_by_another_configuration": "the changed column",
    "tests/workers/secure_sum/client/test_changed_rows.py::test_nothing_is_summed_of_members_that_were_changed": "the changed column",
    "tests/workers/secure_sum/client/test_dishonest_provider.py::test_a_worker_that_dies_at_a_step_of_a_round_is_replaced": "the step; tests/faults has all of an erasure",
    "tests/workers/secure_sum/client/test_failures.py::test_a_member_that_drops_out_at_a_step_is_done_without": "the step",
    "tests/workers/secure_sum/client/test_failures.py::test_a_sum_that_no_rows_have_is_refused": "what is wrong with the sum",
    "tests/workers/secure_sum/client/test_failures.py::test_too_few_that_stay_end_the_round_and_a_new_one_works": "the step",
    "tests/workers/secure_sum/client/test_masked_model.py::test_methods_that_track_an_inverse_are_summed_too": "the method",
    "tests/workers/training/fedavg/test_curvature.py::test_every_kind_of_layer_has_both_products": "the architecture",
    "tests/workers/training/fedavg/test_curvature.py::test_products_are_those_of_the_whole_matrix": "the network and the matrix",
    "tests/workers/training/fedavg/test_device.py::test_a_device_that_does_not_is_a_warning_or_an_error": "what the device gets wrong",
    "tests/workers/training/fedavg/test_rounds.py::test_equal_bits": "the optimiser",
    "tests/workers/training/fedavg/test_rounds.py::test_equal_bits_of_a_convolutional_network": "the optimiser",
    "tests/workers/training/recipes/test_process.py::test_a_forked_fit_is_kept_in_as_a_started_one": "how the process begins",
    "tests/workers/training/recipes/test_process.py::test_the_bytes_are_those_of_a_fit_here": "how the process begins",
    "tests/workers/training/recipes/test_process.py::test_what_fails_ends_and_says_why": "how it fails: each starts a process",
}  # fmt: skip

# The same of all tests of these rooms that begin with an installation.
ONE_CASE_ROOMS = (
    "tests/app/cli",
    "tests/app/purge",
    "tests/workers/jobs",
    "tests/workers/secure_sum/client",
)

# Tests that send PostgreSQL what others send it too: `make repeats` finds them.
REPEATED = frozenset(Path(__file__).with_name("repeats.txt").read_text().split())

# Tests that together reach nearly what all reach: `make quick` finds them.
QUICK = frozenset(Path(__file__).with_name("quick.txt").read_text().splitlines())
# And always these, whose point is what must not pass, and not which statements they reach: hostile
# providers against the verifiers, planted violations of the house, names against the catalogue.
ALWAYS = (
    "tests/redteam/test_empirical.py",
    "tests/redteam/test_exact.py",
    "tests/redteam/test_exact_retrained.py",
    "tests/test_contracts.py",
    "tests/packaging/test_house.py",
    "tests/lethe/test_catalogue.py",
    "tests/docs/test_facts.py",
)
QUICK_FILES = frozenset((*(name.partition("::")[0] for name in QUICK), *ALWAYS))

# Of a witnessed file both verifiers flip every bit of the witness's line, and of the rest a sample:
# a file without a witness has that rest, and each of its bits is flipped for both at once.
REPEATS = (
    "tests/lethe/certificates/test_tampering.py::test_every_single_bit_of_the_file_is_noticed[every]",
    "tests/lethe/web/test_tampering.py::test_every_single_bit_of_the_file_is_noticed[sampled]",
    *(
        f"tests/lethe/{room}/test_tampering.py::{name}[every]"
        for room in ("certificates", "web")
        for name in (
            "test_every_single_bit_of_a_witnessed_file_is_noticed",
            "test_bits_go_unnoticed_only_in_lines_of_keys_that_were_not_given",
        )
    ),
)

# Here a difference between databases is the point: locks, leases, triggers, grants. `make coverage`
# runs the first case of each test on both.
BOTH_DATABASES = ("tests/app/ledger", "tests/migrations", "tests/models")
# Here a step that fails is another transaction that rolls back: PostgreSQL sees each.
EVERY_CASE_ON_BOTH = (
    *BOTH_DATABASES,
    "tests/browser",
    "tests/e2e",
    "tests/faults",
    "tests/packaging",
)

# `make coverage` runs these without compiling them, in which numba takes a minute.
COMPILED = ("tests/lethe/estimators", "tests/workers/jobs/families/test_forest_family.py")

_LEFT_OUT = tuple(FULL)


def assign(items: Iterable[pytest.Item]) -> None:
    """Mark what `make coverage` leaves out with `full`, what repeats a path with `repeats`.

    And what `make test` runs with `quick`.

    Elsewhere than above, PostgreSQL runs the first case of each test that sends it something
    new: the other cases send the same statements with other values.
    """
    seen: set[tuple[str, bool]] = set()
    for item in items:
        name = item.nodeid
        function = name.partition("[")[0]
        given = getattr(getattr(item, "callspec", None), "params", {}).values()
        second = any(isinstance(one, str) and one == "postgresql" for one in given)
        further = (function, second) in seen
        seen.add((function, second))
        if name in QUICK or name.startswith(ALWAYS):
            item.add_marker(pytest.mark.quick)
        if name in REPEATS or (
            second
            and not name.startswith(EVERY_CASE_ON_BOTH)
            and (further or function in REPEATED)
        ):
            item.add_marker(pytest.mark.repeats)
        if name.startswith(COMPILED):
            item.add_marker(pytest.mark.thorough)
        if (
            name.startswith(_LEFT_OUT)
            or (second and (further or not name.startswith(BOTH_DATABASES)))
            or (further and (function in ONE_CASE or _is_of_an_installation(item)))
        ):
            item.add_marker(pytest.mark.full)


def _is_of_an_installation(item: pytest.Item) -> bool:
    fixtures: Iterable[str] = getattr(item, "fixturenames", ())
    return item.nodeid.startswith(ONE_CASE_ROOMS) and "ledger" in fixtures
